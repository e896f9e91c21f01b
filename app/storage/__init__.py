"""What outlives a process or is shared between several: files, voices, presets, Redis.

Knows neither HTTP nor the engine.
"""
