"""The engine: jobs in, audio chunks out, many at once on one loaded model.

Owns jobs, their queue and workers, level 0, the NAR levels, and joining. Does not know HTTP.
"""
