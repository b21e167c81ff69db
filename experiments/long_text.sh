#!/usr/bin/env bash
# long_text.sh OUT: how much memory and time a text of 1,024 to 65,536 characters takes to write, by a recurrence, a hybrid
# and attention: models of 3 layers of width 128 that were trained for a moment on the manuals of this machine. Prints the
# largest resident memory of the process, the bytes of its states and keys and values, and processor time a character.
# Environment: FOVEA (the command), LENGTHS, MODELS.
set -euo pipefail
(($# == 1)) || {
  sed -n '2,5s/^# //p' "$0" >&2
  exit 2
}
out=$(mkdir -p "$1" && cd "$1" && pwd)
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
[[ -f $out/text.train.txt ]] || "$fovea" corpus manuals --output "$out/text" >"$out/text.log"
for mixers in ${MODELS:-gated_delta mamba2 gated_delta,gated_delta,attention attention}; do
  model=$out/long-${mixers//,/-}
  [[ -f $model/model.safetensors ]] ||
    "$fovea" train --model language --train-text "$out/text.train.txt" --valid-text "$out/text.valid.txt" \
      --tokenizer characters --vocab-size 200 --mixers "$mixers" --layers 3 --dim 128 --dim-ffn 256 --heads 4 --longest 131072 \
      --dropout 0 --window 128 --batch 8 --lr 0.004 --lr-warmup 20 --clip-norm 1 --early-stopping 0 --valid-freq 1000000 \
      --save-freq 0 --max-updates 60 --cpu-threads 1 --output "$model" >/dev/null 2>"$model.log"
  for length in ${LENGTHS:-1024 8192 65536}; do
    # Of the process alone: its resident memory at most, and its processor time.
    python3 - "$fovea" generate --model "$model" --prompt 'The ' --max-new-tokens "$length" --seed 1 --cpu-threads 1 \
      --stats <<'PYTHON'
import os, resource, subprocess, sys

command = sys.argv[1:]
length = int(command[command.index("--max-new-tokens") + 1])
run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = used.ru_utime + used.ru_stime
model = os.path.basename(command[command.index("--model") + 1]).removeprefix("long-")
print(f"{model}, {length} characters: {used.ru_maxrss / 1024:.1f} MiB resident, {run.stderr.strip()}, "
      f"{seconds:.1f} s, {length / seconds:.0f} characters a second")
PYTHON
  done
done
