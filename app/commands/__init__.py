"""The commands of `valle-serve`, a module each, imported when the command is run.

Owns flags, terminal output, and exit statuses.
Does not know HTTP but as a client (`speak --url`) and through `serve`.
"""
