"""`valle-serve bench`: the speed of this machine or of a server, and its clients."""
