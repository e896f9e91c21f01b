"""`valle-serve bench`: the speed of this machine or of a server, and its clients.

Owns what is measured and how it is told. Does not know the engine of a server: it is a client.
"""
