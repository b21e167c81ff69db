#!/usr/bin/env bash
# Runs a Python check against an outside oracle: `oracle.sh SCRIPT ARGS...`. `./run test` sets up the Python of .venv;
# without it the check is reported as not run (exit status 77), never as passed.
set -euo pipefail
python=$(dirname "$0")/../.venv/bin/python
if ! [[ -x $python ]] || ! "$python" -c 'import numpy, sacrebleu' 2>/dev/null; then
  echo "not run: no .venv with the packages of tests/requirements.txt (./run test makes it)"
  exit 77
fi
exec "$python" "$@"
