"""The service on a cluster of Ray, on the documented interfaces of Ray Serve; nothing imports it.

Needs `scripts/install ray`. A replica is the application of `app.main`.
"""
