from hypothesis import HealthCheck, settings


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
