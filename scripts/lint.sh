#!/usr/bin/env bash
# Check style, format and types of the code. With --fix, mend what can be mended first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
if [[ "${1:-}" == --fix ]]; then
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .
fi
.venv/bin/ruff check .
.venv/bin/ruff format --check .
exec .venv/bin/mypy
