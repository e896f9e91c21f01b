"""A sound decoder in a process of its own: the client, the server and their messages.

Owns the process and its restarts. Does not know what is decoded there.
"""
