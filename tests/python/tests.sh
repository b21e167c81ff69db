#!/usr/bin/env bash
# The tests of the Python package as `./run test` has installed it into .venv. Those with PyTorch are pytorch.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/environment"
exec "$python" -m pytest -q -x -p no:cacheprovider "$here" --ignore "$here/pytorch"
