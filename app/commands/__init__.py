"""The commands `serve` and `speak`, and the help, errors and output of every other.

Owns flags, terminal output, and exit statuses. Does not know HTTP but as a client (`speak --url`)
and through `serve`.
"""
