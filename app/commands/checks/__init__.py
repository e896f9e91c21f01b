"""Checks before a start, which `valle-serve doctor` makes too.

Owns what is checked on a host and a device, and the advice when a check fails. Does not know how
the results are printed.
"""
