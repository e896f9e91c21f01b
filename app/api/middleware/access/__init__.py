"""Access: who a client is, and whether its key, host name and origin are let in.

Does not know how much a client may ask for, nor what routes do.
"""
