#!/usr/bin/env bash
# The one command that people and CI run: format, lint, types, import contracts, then all tests.
#   tests/check.sh [lint] [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VENV:-.venv}/bin

echo "== format and lint"
"$bin/ruff" format --check -q .
"$bin/ruff" check -q .
echo "== types"
"$bin/mypy"
echo "== import contracts"
"$bin/lint-imports" | tail -n 4
[ "${1:-}" = lint ] && exit
echo "== tests"
exec "$bin/python" -m pytest "$@"
