"""Access control: the ASGI middlewares that every request passes before its route.

Owns request ids, the access log, API keys, hosts, origins, and limits of rate, head and body.
Does not know what a route does with the request.
"""
