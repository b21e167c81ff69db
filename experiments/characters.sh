#!/usr/bin/env bash
# characters.sh OUT [tune]: language models by characters, a Transformer beside Mamba-2 and gated DeltaNet, of equal size,
# each trained for the same processor time on the licences and manuals of this machine. Prints bits a character of the
# held-out part, for three seeds; with `tune` those of the validation part for one seed and all settings that were tried
# (OUT/tune.txt keeps them). The third seed is the first word of 16 bits of the SHA-256 of "fovea characters", fixed
# before anything was run.
# Environment: FOVEA (the command), BUDGET (processor seconds of a training, default 240), SEEDS, and MODELS, among which
# mamba2_hybrid and gated_delta_hybrid are too: two layers of three by the recurrence, the last by attention.
set -euo pipefail
(($# >= 1)) || {
  sed -n '2,8s/^# //p' "$0" >&2
  exit 2
}
out=$(mkdir -p "$1" && cd "$1" && pwd) mode=${2:-compare}
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
budget=${BUDGET:-240}
blind=$((16#$(printf 'fovea characters' | sha256sum | head -c 4)))
TIMEFORMAT='%U %S'

[[ -f $out/text.train.txt ]] || "$fovea" corpus manuals --output "$out/text" >"$out/text.log"

# The inner width of the feed-forward part makes the numbers of parameters equal.
declare -A mixers=([transformer]=attention [mamba2]=mamba2 [gated_delta]=gated_delta
  [mamba2_hybrid]=mamba2,mamba2,attention [gated_delta_hybrid]=gated_delta,gated_delta,attention)
declare -A inner=([transformer]=384 [mamba2]=215 [gated_delta]=328 [mamba2_hybrid]=271 [gated_delta_hybrid]=345)
declare -A rate=([transformer]=0.004 [mamba2]=0.004 [gated_delta]=0.004 [mamba2_hybrid]=0.004 [gated_delta_hybrid]=0.004)
declare -A heads=([transformer]=4 [mamba2]=4 [gated_delta]=4 [mamba2_hybrid]=4 [gated_delta_hybrid]=4)

train() { # MODEL FOLDER SEED UPDATES OPTION...: prints processor seconds
  local model=$1 folder=$2 seed=$3 updates=$4
  shift 4
  rm -rf "$folder"
  { time "$fovea" train --model language --train-text "$out/text.train.txt" --valid-text "$out/text.valid.txt" \
    --tokenizer characters --vocab-size 200 --mixers "${mixers[$model]}" --layers 3 --dim 96 --dim-ffn "${inner[$model]}" \
    --heads "${heads[$model]}" --dropout 0 --window 256 --batch 8 --lr-schedule cosine --lr-warmup 50 --lr "${rate[$model]}" \
    --clip-norm 1 --early-stopping 0 --valid-freq 1000000 --save-freq 0 --max-updates "$updates" --seed "$seed" \
    --cpu-threads 1 --output "$folder" "$@" >/dev/null 2>"$folder.log"; } 2>"$folder.time"
  awk '{ printf "%.1f\n", $1 + $2 }' "$folder.time"
}

# The updates that fit into the budget: by the difference of a longer and a shorter training, so that what does not grow
# with the number of updates cancels.
updates_of() { # MODEL [OPTION...]
  local model=$1 short long
  shift
  short=$(train "$model" "$out/short" 1 10 "$@")
  long=$(train "$model" "$out/long" 1 70 "$@")
  awk -v a="$short" -v b="$long" -v budget="$budget" 'BEGIN { printf "%d\n", budget * 60 / (b - a) }'
}

bits() { # FOLDER PART
  "$fovea" score text --model "$1" --input "$out/text.$2.txt" --window 256 --cpu-threads 1 | cut -f 4 | cut -d ' ' -f 1
}

size_of() { sed -n 's/.*vocabulary [0-9]*, \(.*\) parameters/\1/p' "$1.log"; }

if [[ $mode == tune ]]; then
  for model in ${MODELS:-transformer mamba2 gated_delta}; do
    for h in ${HEADS:-4 2 8}; do
      heads[$model]=$h
      updates=$(updates_of "$model")
      for r in ${RATES:-0.002 0.004 0.008}; do
        rate[$model]=$r
        used=$(train "$model" "$out/tuned" 1 "$updates")
        echo "$model, $h heads, rate $r: $(bits "$out/tuned" valid) bits a character of the validation part, $updates updates," \
          "$used s, $(size_of "$out/tuned")" | tee -a "$out/tune.txt"
      done
    done
  done
  exit
fi

for model in ${MODELS:-transformer mamba2 gated_delta}; do
  updates=$(updates_of "$model")
  for seed in ${SEEDS:-1 2 $blind}; do
    used=$(train "$model" "$out/$model-$seed" "$seed" "$updates")
    echo "$model, seed $seed: $(bits "$out/$model-$seed" test) bits a character, $updates updates, $used s," \
      "$(size_of "$out/$model-$seed") parameters" | tee -a "$out/results.txt"
  done
done
