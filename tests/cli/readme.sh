#!/usr/bin/env bash
# readme.sh FOVEA: runs the commands of the README as they stand there, with less training.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/script.bash"
mkdir bin
ln -s "$fovea" bin/fovea
PATH=$PWD/bin:$PATH

# Arrays of one head, 6 positions and 4 elements; the last is the derivative of a loss by the output.
python3 - <<'END'
import struct

for name in ("q", "k", "v", "d_output"):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 6, 4), }".ljust(117) + "\n"
    with open(name + ".npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack("<24f", *((7 * i % 5) / 5 for i in range(24))))
END

for page in README.md README.zh.md; do
  awk '/^```sh$/ { block = ""; on = 1; next } /^```$/ { if (on && block ~ /fovea train/) print block; on = 0 }
    on { block = block $0 "\n" }' "$root/$page" >commands
  [[ $(grep -c '^fovea' commands) -ge 7 && $(grep -c -- '--weights int8' commands) == 1 ]] || fail "$page: no blocks of commands"
  # 2 seconds of training in place of 5 minutes, on 300 pairs.
  sed -i 's/--max-minutes 5/--max-minutes 0.03 --dim-emb 16 --dim-rnn 16/; s/fovea corpus generated/& --count 300 --held-out 50/
    s/--corpus generated/& --corpus-size 300/' commands
  bash -euo pipefail commands >said 2>errors || fail "$page: $(tail -n 3 errors)"
  for written in page.html page.png sat.svg o.npy gradients; do
    [[ -e $written ]] || fail "$page: no $written"
  done
  rm -rf en-fr* translator model page.html page.png sat.svg o.npy gradients
done
