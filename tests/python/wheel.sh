#!/usr/bin/env bash
# A stranger's way: a wheel by `python -m build`, in an environment of its own, then installed into a new virtual
# environment that sees no compiler. It must compute there, stay small, and import quickly enough not to be noticed.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
python=$source/.venv/bin/python
if ! [[ -x $python ]] || ! "$python" -c 'import build, fovea' 2>/dev/null; then
  echo "not run: no .venv with build and the package (./run test makes it)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The compilers by the names that CMake finds, so that ccache knows the objects of the first build again.
CC=cc CXX=c++ "$python" -m build --wheel --outdir "$work/dist" "$source" >"$work/log" 2>&1 || {
  tail -n 40 "$work/log"
  ! grep -q 'No matching distribution\|Connection\|Temporary failure' "$work/log" || exit 77
  exit 1
}
wheel=$(echo "$work"/dist/*.whl)
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $bytes bytes"
((bytes < 15 * 1000 * 1000))

"$python" -m venv "$work/venv"
PATH=$work/venv/bin:/nowhere "$work/venv/bin/pip" install -q --disable-pip-version-check --no-input "$wheel"
cd "$work"
cat >smoke.py <<'END'
import time

import numpy as np

begin = time.perf_counter()
import fovea

print(f"import: {(time.perf_counter() - begin) * 1e3:.0f} ms beyond NumPy")
q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 9, 8)).astype(np.float32) for n in range(3))
s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(8)
s[:, :, np.arange(9)[:, None] < np.arange(9)] = -np.inf
p = np.exp(s - s.max(-1, keepdims=True))
want = p / p.sum(-1, keepdims=True) @ v
isas = list(dict.fromkeys(isa for isa, _, available in fovea.list_kernels() if available))
for isa in isas:
    plan = fovea.plan(num_query_heads=2, query_len=9, head_dim=8, mask=fovea.Causal(), kernel=isa)
    assert np.abs(plan(q, k, v) - want).max() < 1e-5, isa
print("kernels:", *isas)
END
env -i PATH=/nowhere HOME="$work" "$work/venv/bin/python" smoke.py
