"""Plachtaa/VALL-E-X and lifeiteng/vall-e: their files as values of this project's one stack."""
