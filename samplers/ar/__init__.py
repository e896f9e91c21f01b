"""The sampler of level 0, code by code, for rows that join and leave.

Owns histories, state, the order of the processors, beam searches, traces, and the rows that a
captured step samples.
Knows neither the model that gives the logits nor what its rows stand for.
"""
