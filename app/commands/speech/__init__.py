"""The command `valle-serve speak`: its flags, and where the audio goes.

Owns long texts, the journal of an interrupted run, sound files, players, and the client of a
server.
Does not know how speech is generated; that is `app.engine`, in this process or behind a server.
"""
