"""`python -m valle_serve` is `valle-serve`."""

from valle_serve import main

if __name__ == "__main__":
    raise SystemExit(main())
