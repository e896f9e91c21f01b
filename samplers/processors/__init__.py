"""What stands between knobs and formulas: logits processors for the rows of a batch, and the draw.

They know no history of a row beyond what `Scores` holds, and keep no state from step to step.
"""
