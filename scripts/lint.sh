#!/usr/bin/env bash
# Check the style and the format of the code. With --fix, mend what can be mended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
if [[ "${1:-}" == --fix ]]; then
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .
else
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
fi
