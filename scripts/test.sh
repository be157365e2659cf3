#!/usr/bin/env bash
# Install what is missing, then run the tests, except those marked slow. Arguments go to pytest:
#   bash scripts/test.sh -m slow
#   bash scripts/test.sh tests/encodings -k t5
#   bash scripts/test.sh -n 0 --pdb tests/test_rows.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
# Two workers with one thread each: small tensors gain nothing from more threads.
export OMP_NUM_THREADS=1
exec python -m pytest -n 2 --dist worksteal -m "not slow" "$@"
