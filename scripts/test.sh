#!/usr/bin/env bash
# Everything that must hold before a change lands: set-up, style, types, walls between rooms, tests.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh dev
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/lint-imports --no-cache
exec .venv/bin/python -m pytest "$@"
