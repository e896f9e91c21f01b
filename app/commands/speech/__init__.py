"""What `valle-serve speak` consists of: flags, the request and its outputs, long texts, players.

Does not know how speech is generated: it is a client of the service.
"""
