"""Middleware: what every request passes before its route, one subject a file.

`gate.py` asks the others in order. Each does not know what a route does with the request.
"""
