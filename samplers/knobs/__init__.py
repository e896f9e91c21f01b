"""The knobs of a request: their declaration, presets, conflicts and resolution.

Owns each knob's name, bounds, default and meaning, and which features it switches on.
Loads without torch: the API, the command line and the docs are made from it.
"""
