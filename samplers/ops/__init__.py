"""Pure functions of tensors: filters, penalties, temperatures, samples, detectors.

They know no knobs and keep no state. Unless a docstring says otherwise, logits are ``(B, V)``
float32 (-inf: excluded), parameters ``(B, 1)`` float32, histories ``(B, L)`` int64, newest first,
-1 where there is no code yet; results have the shape of the logits, and no argument is changed.
"""
