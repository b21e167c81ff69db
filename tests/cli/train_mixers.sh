#!/usr/bin/env bash
# fovea train --model transformer --mixers: a translator by recurrences is trained, stopped, resumed with the same bits,
# translates greedily and by beams, and is shown and looked into.
. "$(dirname "$0")/script.bash"
expect() {
  grep -qF -- "$1" "$2" || fail "expected '$1' in: $(cat "$2")"
}

train() {
  "$fovea" train --model transformer --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 --dim-ffn 16 \
    --heads 2 --layers 2 --mini-batch-words 200 --valid-freq 4 --lr-warmup 5 --cpu-threads 1 "$@" 2>log ||
    fail "$(cat log)"
}
train --output whole --mixers gated_delta,mamba --max-updates 8
train --output parts --mixers gated_delta,mamba --max-updates 5
train --output parts --mixers gated_delta,mamba --max-updates 8 --resume
cmp whole/model.safetensors parts/model.safetensors
train --output coarse --mixers gated_delta,mamba --max-updates 8 --precision bf16
grep -qF '"precision": "bf16"' coarse/training.json || fail "training.json: $(cat coarse/training.json)"
if cmp -s whole/model.safetensors coarse/model.safetensors; then fail "--precision does nothing"; fi
grep -A 3 '"encoder_mixers"' whole/config.json >said
expect '"gated_delta"' said
expect '"mamba"' said
# Another mixer is another model.
if "$fovea" train --model transformer --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 --dim-ffn 16 \
  --heads 2 --layers 2 --mini-batch-words 200 --valid-freq 4 --lr-warmup 5 --cpu-threads 1 --output parts --mixers gla \
  --max-updates 9 --resume 2>error; then fail "resumed with other mixers"; fi

for beam in 1 4; do
  printf '%s\n' 'the cat sat on the mat .' 'a dog' >source
  "$fovea" translate --model whole --beam-size $beam --cpu-threads 1 --input source >translated-$beam
  [[ $(wc -l <translated-$beam) == 2 ]] || fail "beam $beam: $(cat translated-$beam)"
done

"$fovea" show whole >said
expect 'encoder 1   gated_delta, reads both ways' said
expect 'decoder 1   gated_delta, a state of ' said
expect '; decay a token at rest, by head: 0.' said
expect '; decay a token at rest, of 32 channels: 0.' said
expect 'runs        yes' said
"$fovea" show whole --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["encoder_layers"] == ["gated_delta", "mamba"], report
assert [layer["mixer"] for layer in report["layers"]] == ["gated_delta", "mamba"], report
assert all(layer["state_bytes"] > 0 and layer["cache_bytes_per_token"] == 0 for layer in report["layers"]), report
assert len(report["layers"][0]["resting_decays"]) == 2, report
'

"$fovea" inspect --model whole --source 'the cat sat .' --target 'le chat .' --picture maps.svg >said
expect 'encoder.self layer 1 gated_delta: reads both ways; decay a token, by head: ' said
expect '; from right to left; decay a token, by head: ' said
expect 'decoder.self layer 1 gated_delta: a state of ' said
expect 'decoder.self layer 2 mamba: a state of ' said
expect 'whatever the length; decay a token, of 32 channels: 0.' said
expect '; from right to left; decay a token, of 32 channels: 0.' said
expect 'le chat .' said
expect 'encoder.self layer 1 gated_delta' maps.svg
expect 'decoder.cross layer 2' maps.svg

# Attention reads, a recurrence writes.
train --output mixed --encoder-mixers attention --mixers rwkv7 --positions rotary --max-updates 2
"$fovea" show mixed >said
expect 'encoder 2   attention' said
expect 'decoder 2   rwkv7, a state of ' said
# And so does attention to few rows of what is long ago.
train --output few --encoder-mixers gla --mixers merging --positions alibi --max-updates 2
"$fovea" show few >said
expect 'decoder 2   merging, 36 bytes a token' said
for mixer in merging linformer pooled; do
  train --output once --encoder-mixers gla --mixers $mixer --positions alibi --max-updates 6
  train --output twice --encoder-mixers gla --mixers $mixer --positions alibi --max-updates 3
  train --output twice --encoder-mixers gla --mixers $mixer --positions alibi --max-updates 6 --resume
  cmp once/model.safetensors twice/model.safetensors || fail "resumed $mixer"
  rm -r once twice
done
for beam in 1 4; do "$fovea" translate --model few --beam-size $beam --cpu-threads 1 --input source >translated-$beam; done
"$fovea" inspect --model few --source 'the cat sat .' --target 'le chat .' --picture maps.svg >said
expect 'decoder.self layer 1 merging: ' said
# A translator by attention alone has no list, and is shown too.
train --output plain --max-updates 2
if grep -q mixers plain/config.json; then fail "a list of attention alone"; fi
"$fovea" show plain >said
expect 'decoder 1   attention, 128 bytes a token' said
expect 'runs        yes' said

"$fovea" inspect --model whole --source 'the cat sat .' --target 'le chat .' >said
expect 'decoder.self layer 2 mamba: a state of ' said
if "$fovea" inspect --model plain --source 'the cat' --target 'le chat' 2>error; then fail "nothing to write"; fi
expect 'at least one of them' error

refused() {
  local says=$1
  shift
  if "$fovea" train --output bad --corpus generated "$@" 2>error; then fail "not refused: $*"; fi
  expect "$says" error
}
refused "got 'glb'" --model transformer --mixers glb
refused '--encoder-mixers' --model transformer --encoder-mixers glb
refused '--positions' --model transformer --mixers mamba2 --positions alibi
refused '--positions' --model transformer --mixers retention --positions relative
refused '--mixers' --model rnn --mixers gla
refused '--encoder-mixers' --model transformer --mixers pooled
refused '--positions' --model transformer --encoder-mixers gla --mixers pooled --positions relative
refused '--encoder-mixers' --model language --encoder-mixers gla
refused 'here or in --max-minutes' --model transformer --lr-schedule cosine
echo "train_mixers: trained, resumed, translated, shown, looked into"
