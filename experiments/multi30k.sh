#!/usr/bin/env bash
# multi30k.sh DATA OUT [transformer|rnn-additive|rnn-none]...: Multi30k English to German, already split into 10k joint
# sub-words (files en-de.train.en and so on in DATA, as in Wu et al. 2021, arXiv 2105.14462). Trains each model at most
# MINUTES (default 45) and prints lower-cased tokenised BLEU on the three test sets. Run again, it goes on where it
# stopped.
# Environment: FOVEA (the command), MINUTES, THREADS (default 2), PRECISION (f32 or bf16, default f32), SEED (default
# 1), UPDATES, how many the Transformer has until its learning rate is 0 (default: as many as MINUTES hold), and its
# DROPOUT (default 0.2). UPDATES=31250 DROPOUT=0.3 sees the 64 million tokens of the paper, with its dropout.
# NORM=post has the paper's norms, behind each residual, at half of the rate (default pre, before each): `fovea convert`
# makes a MarianMTModel of no other.
set -euo pipefail
(($# >= 2)) || {
  sed -n '2,10s/^# //p' "$0" >&2
  exit 2
}
data=$1 out=$2
shift 2
(($#)) || set -- transformer rnn-additive rnn-none
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
minutes=${MINUTES:-45} threads=${THREADS:-2} dropout=${DROPOUT:-0.2}
precision=${PRECISION:-f32} norm=${NORM:-pre} seed=${SEED:-1}
rate=$([[ $norm == pre ]] && echo 0.004 || echo 0.002)
mkdir -p "$out"

# The paper's Transformer-Tiny, with updates of 2k instead of 8k tokens, a lower peak rate, less dropout and a rate that
# falls to 0: a CPU has time for half of its 8,000 updates of that size, and small ones learn more in the same time.
# The paper's norms stand behind each residual. Before it the model learns as much in half of the updates
# (docs/decisions/0050-norms-before-residuals.md).
transformer=(--model transformer --dim 128 --dim-ffn 256 --heads 4 --layers 4 --norm "$norm" --dropout "$dropout"
  --mini-batch-words 2048 --lr "$rate" --lr-schedule cosine --lr-warmup 800 --valid-freq 500
  --max-updates "${UPDATES:-0}")
rnn=(--model rnn --dim-emb 128 --dim-rnn 256 --dropout 0.2 --mini-batch-words 1000 --lr 0.002 --lr-warmup 1000
  --clip-norm 1 --valid-freq 500)

for model in "$@"; do
  case $model in
    transformer) options=("${transformer[@]}") ;;
    rnn-additive) options=("${rnn[@]}" --attention additive) ;;
    rnn-none) options=("${rnn[@]}" --attention none) ;;
    *)
      echo "multi30k.sh: unknown model '$model' (there are transformer, rnn-additive, rnn-none)" >&2
      exit 2
      ;;
  esac
  folder=$out/$model resume=()
  [[ -f $folder/checkpoint.safetensors ]] && resume=(--resume)
  "$fovea" train "${options[@]}" --train-source "$data/en-de.train.en" --train-target "$data/en-de.train.de" \
    --valid-source "$data/en-de.valid.en" --valid-target "$data/en-de.valid.de" --tokenizer whitespace \
    --label-smoothing 0.1 --average 5 --early-stopping 0 --cpu-threads "$threads" --precision "$precision" \
    --seed "$seed" --max-minutes "$minutes" --output "$folder" "${resume[@]}"
  for test in 2016 2017 coco; do
    sed 's/@@ //g' "$data/en-de.test.$test.de" >"$out/reference.$test.de"
    "$fovea" translate --model "$folder" --beam-size 5 --cpu-threads "$threads" \
      --input "$data/en-de.test.$test.en" --output "$folder/test.$test.de"
    echo "$model test $test: $("$fovea" score bleu --tokenize none --lowercase \
      --reference "$out/reference.$test.de" --hypothesis "$folder/test.$test.de" | tr '\n' ' ')"
  done
done
