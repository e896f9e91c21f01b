"""The service on a cluster of Ray, on the documented interfaces of Ray Serve; nothing imports it.

Needs `pip install valle-serve[ray]`. A replica is the application of `app.main`.
"""
