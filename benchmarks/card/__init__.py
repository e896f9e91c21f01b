"""What a lent card is for: correctness there, speed there, and where the time goes.

`python -m benchmarks.card.ticket` runs all of it in under nine minutes. Every part is a process of
its own, so that one that fails, hangs or lacks a package costs none of the others.
"""
