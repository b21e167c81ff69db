#!/usr/bin/env bash
# kill_resume.sh FOVEA [ROUNDS]: a training that is killed with SIGKILL at random moments and resumed ends with the bits of
# an uninterrupted one, and no round loses an earlier save.
set -uo pipefail
fovea=$1 rounds=${2:-10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "kill_resume: $*" >&2
  exit 1
}

"$fovea" corpus generated --output "$work/data" --count 300 --held-out 20 --max-words 8 >/dev/null || fail "no corpus"
start() { # start FOLDER [OPTION...]: becomes the training
  local folder=$1
  shift
  exec "$fovea" train --model rnn --attention additive --dim-emb 16 --dim-rnn 16 --dropout 0.2 --tokenizer whitespace \
    --train-source "$work/data.train.en" --train-target "$work/data.train.fr" \
    --valid-source "$work/data.valid.en" --valid-target "$work/data.valid.fr" \
    --mini-batch-words 128 --max-updates 300 --valid-freq 60 --save-freq 5 --average 2 --early-stopping 0 \
    --cpu-threads 1 --output "$folder" "$@" 2>"$folder.log"
}

began=$EPOCHREALTIME
(start "$work/unbroken") || fail "the unbroken training failed: $(cat "$work/unbroken.log")"
took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')

reached=0 killed=0
resume() { [[ -f $work/broken/checkpoint.safetensors ]] && echo --resume; }
check_log() { # the update that this round resumed at is never below an earlier one
  local at
  at=$(sed -n 's/.*resumed at update \([0-9]*\).*/\1/p' "$work/broken.log")
  [[ -z $at ]] && return
  ((at >= reached)) || fail "resumed at update $at after a round that had saved $reached"
  reached=$at
}
for ((round = 0; round < rounds; ++round)); do
  # A training that was killed before its first save has left a vocabulary, and is begun again in an empty folder.
  if [[ ! -f $work/broken/checkpoint.safetensors ]]; then
    ((reached == 0)) || fail "the checkpoint of update $reached or later is gone"
    rm -rf "$work/broken"
  fi
  (start "$work/broken" $(resume)) &
  training=$!
  sleep "$(awk -v seed="$RANDOM" -v took="$took" 'BEGIN { srand(seed); print 0.02 + rand() * took / 5 }')"
  kill -KILL "$training" 2>/dev/null && ((++killed))
  wait "$training" 2>/dev/null
  code=$?
  [[ $code == 137 || $code == 0 ]] || fail "round $round: exit code $code: $(cat "$work/broken.log")"
  check_log
done
(start "$work/broken" $(resume)) || fail "the last round failed: $(cat "$work/broken.log")"
check_log
((killed > 0)) || fail "no training was killed"
cmp "$work/unbroken/model.safetensors" "$work/broken/model.safetensors" || fail "the models differ"
[[ -z $(find "$work/broken" -name '*.partial') ]] || fail "partial files are left: $(ls "$work/broken")"

# SIGTERM saves at any moment, and the exit code shows it; such a training is also resumed to the same bits.
resume() { [[ -f $work/ended/checkpoint.safetensors ]] && echo --resume; }
stopped=0
for ((round = 0; round < 4; ++round)); do
  (start "$work/ended" $(resume)) &
  training=$!
  sleep "$(awk -v seed="$RANDOM" -v took="$took" 'BEGIN { srand(seed); print 0.1 + rand() * took / 4 }')"
  kill -TERM "$training" 2>/dev/null
  wait "$training"
  code=$?
  case $code in
    143) ((++stopped)) ;;
    0) ;;
    *) fail "SIGTERM: exit code $code: $(cat "$work/ended.log")" ;;
  esac
done
(start "$work/ended" $(resume)) || fail "after SIGTERM: $(cat "$work/ended.log")"
((stopped > 0)) || fail "no training was stopped"
cmp "$work/unbroken/model.safetensors" "$work/ended/model.safetensors" || fail "the models differ after SIGTERM"
echo "kill_resume: $killed of $rounds rounds killed, $stopped of 4 stopped; same bits"
