"""What benchmarks share: servers to measure, clients, faults, tables and JSON reports.

Owns measuring. Does not know what any benchmark measures or its targets.
"""
