"""`python -m app` is `valle-serve`."""

from app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
