"""Middleware: what every request passes before its route, one subject a file.

`gate.py` asks the others in order. None of them knows what a route does with the request.
"""
