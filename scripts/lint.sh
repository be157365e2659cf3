#!/usr/bin/env bash
# Check the style. Arguments go to ruff: bash scripts/lint.sh --fix
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
exec .venv/bin/ruff check "$@" .
