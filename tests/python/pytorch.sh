#!/usr/bin/env bash
# The tests of the Python package under PyTorch, which `./run test --torch` installs into .venv.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/environment"
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "not run: PyTorch is not in .venv (./run test --torch installs it)"
  exit 77
fi
# Files whose tests do more where PyTorch is installed. tests.sh may have run them without it.
exec "$python" -m pytest -q -x -p no:cacheprovider "$here/pytorch" "$here"/test_{docs,import,libraries,masks,tour}.py
