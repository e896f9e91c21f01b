#!/bin/sh
# The whole GPU suite, in under ten minutes: the tests that need a card, then one table.
#   benchmarks/gpu.sh [--out gpu.json]
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" -m pytest -q -m gpu tests
exec "$python" -m benchmarks.model.gpu "$@"
