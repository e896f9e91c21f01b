"""The checks of `valle-serve doctor`.

Owns what is checked on a host, a device and a loaded model, and the advice when a check fails.
Does not know how the results are printed.
"""
