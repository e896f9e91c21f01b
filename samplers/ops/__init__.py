"""Pure functions of tensors: filters, penalties, temperatures, draws, detectors.

Owns the formulas and names their sources.
Knows no knobs and keeps no state: parameters are tensors or numbers.
"""
