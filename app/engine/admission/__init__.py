"""Admission: who may begin, by costs, by what each client has, and by what was promised.

Owns costs, quotas, lengths of playback. Does not know text, codes or HTTP.
"""
