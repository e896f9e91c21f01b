"""What the service does not need: its clients `batch`, `bench` and `study`, and porting a model.

No module of the service imports it.
"""
