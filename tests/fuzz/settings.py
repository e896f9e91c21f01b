import os
import random

from hypothesis import HealthCheck, settings


def cases_of(variable: str, in_ci: int) -> int:
    """Return how many cases an environment variable asks for, else as many as CI takes."""
    return int(os.environ.get(variable, in_ci))


def seed_of(cases: int, in_ci: int) -> int:
    """Return the seed of cases: CI takes the same every time, others get others."""
    return 1 if cases == in_ci else random.SystemRandom().randrange(2**32)


def fuzzed(cases: int, *, derandomize: bool) -> settings:
    """Return how cases are drawn: none is kept, and what failed is printed to be tried again."""
    return settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=derandomize,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
