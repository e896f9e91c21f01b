"""What the service does not need: clients, the operator's commands, and porting a model.

No module of the service imports it.
"""
