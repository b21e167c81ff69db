#!/usr/bin/env bash
# The tests of the Python package as `./run test` has installed it into .venv.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../.venv/bin/python
# Not from the checkout, whose python/fovea has no extension module.
cd "$here"
if ! [[ -x $python ]] || ! "$python" -c 'import fovea, pytest' 2>/dev/null; then
  echo "not run: no .venv with the package and pytest (./run test makes it)"
  exit 77
fi
exec "$python" -m pytest -q -x -p no:cacheprovider "$here"
