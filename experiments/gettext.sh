#!/usr/bin/env bash
# gettext.sh OUT: English to French from the message catalogues installed on this machine. Trains a Transformer for
# MINUTES (default 15), prints BLEU on the held-out messages and ten of their translations. Run again, it goes on.
# Environment: FOVEA (the command), MINUTES, THREADS (default 2), LANGUAGE_TO (default fr).
set -euo pipefail
(($# == 1)) || {
  sed -n '2,4s/^# //p' "$0" >&2
  exit 2
}
out=$1
fovea=${FOVEA:-$(dirname "$(readlink -f "$0")")/../build/release/fovea}
minutes=${MINUTES:-15} threads=${THREADS:-2} to=${LANGUAGE_TO:-fr}
mkdir -p "$out"

"$fovea" corpus gettext --language "$to" --output "$out/data"
# Validation costs time that the training should have; the first messages of a hash split are as good as any.
head -n 400 "$out/data.valid.en" >"$out/valid.en"
head -n 400 "$out/data.valid.$to" >"$out/valid.$to"
resume=()
[[ -f $out/model/checkpoint.safetensors ]] && resume=(--resume)
"$fovea" train --model transformer --dim 192 --dim-ffn 512 --heads 4 --layers 3 --norm pre --dropout 0.1 \
  --train-source "$out/data.train.en" --train-target "$out/data.train.$to" \
  --valid-source "$out/valid.en" --valid-target "$out/valid.$to" \
  --tokenizer bpe --vocab-size 8000 --max-length 80 --mini-batch-words 2048 --lr 0.002 --lr-warmup 500 \
  --label-smoothing 0.1 --average 3 --early-stopping 0 --valid-freq 500 --max-minutes "$minutes" \
  --cpu-threads "$threads" --output "$out/model" "${resume[@]}"

head -n 1000 "$out/data.test.en" >"$out/test.en"
head -n 1000 "$out/data.test.$to" >"$out/test.$to"
"$fovea" translate --model "$out/model" --beam-size 5 --cpu-threads "$threads" --input "$out/test.en" \
  --output "$out/test.translated"
"$fovea" score bleu --reference "$out/test.$to" --hypothesis "$out/test.translated"

# Ten whole sentences, none chosen by hand: every n-th of those with 6 to 20 words.
paste -d '\t' "$out/test.en" "$out/test.$to" "$out/test.translated" |
  awk -F '\t' '{ n = split($1, words, " ") } n >= 6 && n <= 20 { line[++count] = $0 }
    END { for (i = 0; i < 10 && i < count; ++i) print line[1 + int(i * count / 10)] }' |
  while IFS=$'\t' read -r source target translated; do
    printf '\nen    %s\n%s    %s\nfovea %s\n' "$source" "$to" "$target" "$translated"
  done
