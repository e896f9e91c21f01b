"""Texts read in a process of their own: the client, the server and their messages.

Owns the process and its restarts. Does not know jobs, nor in which order texts are read.
"""
