"""The command `valle-serve study`: which takes it needs, their measures, and the page about them.

Owns the grid, the race, the file of takes that a study resumes from, judges, and intervals.
Does not know how speech is generated; that is the service, in this process or at a URL.
"""
