#!/usr/bin/env bash
# decoding.sh: decoding with and without reuse of keys, values and states, at lengths 32 to 512: same tokens, tokens/s,
# bytes of state and score evaluations (which grow as source times target length with attention).
# Environment: FOVEA (the command), THREADS (default 2).
set -euo pipefail
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
exec "$fovea" bench decode --lengths 32 64 128 256 512 --cpu-threads "${THREADS:-2}"
