#!/usr/bin/env bash
# masks.sh: what a mask saves, at 16,384 and 32,768 queries and keys of one head of 64: time of one core a pair kept beside that of
# full attention (1.00: time proportional to the pairs), and the memory of each row's own process.
# Environment: FOVEA (the command), THREADS (default 1), LENGTHS, REPEAT and ROUNDS (the best of so many runs in each of so many rounds
# counts, default 2 and 3).
set -euo pipefail
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
for length in ${LENGTHS:-16384 32768}; do
  "$fovea" bench attention --lengths "$length" --heads 1 --clock cpu --cpu-threads "${THREADS:-1}" --repeat "${REPEAT:-2}" \
    --rounds "${ROUNDS:-3}" --masks everything causal "documents($(seq -s , 0 $((length / 4)) "$length"))" 'window(255,0)' \
    'window(1023,0)' 'window(1023,0) | global(0,1,2,3)' "bigbird($length,64,1,1,3,7)" "bigbird($length,128,1,1,3,7)"
done
