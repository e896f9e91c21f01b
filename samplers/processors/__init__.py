"""What stands between knobs and formulas, built for the rows of a batch.

Owns the logits processors, their registry, and the draw.
Knows no history of a row beyond what `Scores` holds, and keeps no state from step to step.
"""
