#!/usr/bin/env bash
# Which state of the decoder asks, that before the step or that after it (docs/tour/2-looking-back.md): four RNN
# translators a seed, trained alike. About four minutes each on one core.
#   [SEEDS="1 2"] experiments/query_state.sh OUT
set -euo pipefail
out=$(mkdir -p "${1:?a folder for the models}" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
fovea=${FOVEA:-build/release/fovea}
"$fovea" corpus generated --output "$out/en-fr" --count 20000 --held-out 300 --max-words 24
for seed in ${SEEDS:-1 2}; do
  for attention in additive scaled-dot; do
    for query in before after; do
      model=$out/$attention-$query-$seed
      "$fovea" train --output "$model" --attention "$attention" --query "$query" --dim-emb 96 --dim-rnn 96 \
        --dropout 0 --vocab-size 2000 --mini-batch-words 1024 --max-updates 1200 --lr-warmup 200 \
        --learn-rate 0.003 --cpu-threads 1 --seed "$seed" --valid-freq 1200 \
        --train-source "$out/en-fr.train.en" --train-target "$out/en-fr.train.fr" \
        --valid-source "$out/en-fr.valid.en" --valid-target "$out/en-fr.valid.fr" >"$model.log" 2>&1
      "$fovea" translate --model "$model" <"$out/en-fr.test.en" >"$model.fr" 2>>"$model.log"
      printf '%s, %s, seed %s: %s\n' "$attention" "$query" "$seed" \
        "$("$fovea" score bleu --reference "$out/en-fr.test.fr" --hypothesis "$model.fr" | head -1)"
    done
  done
done
