#!/usr/bin/env bash
# fovea train --model language: a hybrid is trained, stopped, resumed with the same bits, and writes text.
set -euo pipefail
fovea=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for n in $(seq 60); do
  echo "the cat $((n % 7)) sees the dog $((n % 5)) and the bird $((n % 3)), said number $n"
done > "$folder/train.txt"
tail -n 20 "$folder/train.txt" > "$folder/valid.txt"

train() {
  "$fovea" train --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" \
    --mixers 'gated_delta*3,attention' --layers 4 --dim 16 --dim-ffn 16 --heads 2 --vocab-size 100 \
    --window 16 --batch 2 --lr-warmup 5 --valid-freq 4 --cpu-threads 1 "$@" 2> "$folder/log"
}
expect() {
  grep -qF -- "$1" "$2" || { echo "expected '$1' in:"; cat "$2"; exit 1; }
}

train --output "$folder/whole" --max-updates 12
train --output "$folder/parts" --max-updates 7
train --output "$folder/parts" --max-updates 12 --resume
cmp "$folder/whole/model.safetensors" "$folder/parts/model.safetensors"
expect '"fovea-language"' "$folder/whole/config.json"

# In bf16 the training is another one, and so are the probabilities of a model with weights of bf16.
train --output "$folder/coarse" --max-updates 12 --precision bf16
expect '"precision": "bf16"' "$folder/coarse/training.json"
if cmp -s "$folder/whole/model.safetensors" "$folder/coarse/model.safetensors"; then echo "--precision does nothing"; exit 1; fi
if train --output "$folder/coarse" --max-updates 14 --resume; then echo "resumed bf16 in f32"; exit 1; fi
expect 'precision is "f32" and was "bf16"' "$folder/log"

write() { "$fovea" generate --model "$folder/whole" --cpu-threads 1 --seed 3 "$@"; }
write --prompt 'the cat' --length 4 --greedy --json > "$folder/one"
write --prompt 'the cat' --length 4 --greedy --json --weights bf16 > "$folder/first"
if cmp -s "$folder/one" "$folder/first"; then echo "--weights bf16 does nothing"; exit 1; fi
write --prompt 'the cat' --length 12 > "$folder/one"
write --prompt 'the cat' --length 5 --save-state "$folder/state" > "$folder/first"
write --load-state "$folder/state" --length 7 > "$folder/rest"
test -s "$folder/one"
# The rest goes on with the state of the recurrences. Each output ends with a line feed of its own.
{ head -c -1 "$folder/first"; cat "$folder/rest"; } > "$folder/both"
cmp "$folder/one" "$folder/both"

"$fovea" show "$folder/whole" > "$folder/said"
expect 'layer 1     gated_delta, a state of ' "$folder/said"
expect 'runs        yes' "$folder/said"

# Each layer is a map, and says what it keeps and how fast it forgets.
inspect() { "$fovea" inspect --model "$folder/whole" --source 'the cat sees the dog' "$@"; }
inspect --picture "$folder/maps.svg" > "$folder/said"
expect 'layer 1 gated_delta: a state of ' "$folder/said"
expect 'whatever the length; decay a token, by head: 0.' "$folder/said"
expect 'layer 4 attention: ' "$folder/said"
expect 'layer 3 gated_delta' "$folder/maps.svg"
if inspect --target 'a' --picture "$folder/maps.svg" 2> "$folder/error"; then echo "not refused: --target"; exit 1; fi
expect '--target' "$folder/error"

# Mamba's channels have weights of their own and no map. What its layers keep is said all the same.
"$fovea" train --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" --mixers mamba --layers 2 \
  --dim 16 --dim-ffn 16 --vocab-size 100 --window 20 --batch 2 --lr-warmup 5 --cpu-threads 1 \
  --output "$folder/mamba" --max-updates 2 2> "$folder/log"
look() { "$fovea" inspect --model "$folder/mamba" --source 'the cat sees the dog' "$@"; }
look > "$folder/said"
expect 'layer 2 mamba: a state of ' "$folder/said"
expect 'whatever the length; decay a token, of 32 channels: 0.' "$folder/said"
for wanted in "--picture $folder/mamba.svg" "--html $folder/mamba.html" "--graph $folder/mamba.svg" --show; do
  # shellcheck disable=SC2086
  if look $wanted > "$folder/said" 2> "$folder/error"; then echo "not refused: $wanted"; exit 1; fi
  expect 'whose weights can be drawn' "$folder/error"
done

# Attention to few rows of what is long ago, over windows and texts of more than one block.
"$fovea" train --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" \
  --mixers pooled,linformer,merging --layers 3 --dim 16 --dim-ffn 16 --heads 2 --vocab-size 100 --window 80 --batch 2 \
  --lr-warmup 5 --valid-freq 4 --cpu-threads 1 --output "$folder/blocks" --max-updates 6 2> "$folder/log"
write_blocks() { "$fovea" generate --model "$folder/blocks" --cpu-threads 1 --seed 3 "$@"; }
write_blocks --prompt 'the cat' --length 150 > "$folder/one"
write_blocks --prompt 'the cat' --length 70 --save-state "$folder/state" > "$folder/first"
write_blocks --load-state "$folder/state" --length 80 > "$folder/rest"
{ head -c -1 "$folder/first"; cat "$folder/rest"; } > "$folder/both"
cmp "$folder/one" "$folder/both"
"$fovea" show "$folder/blocks" > "$folder/said"
expect 'layer 1     pooled, 36 bytes a token, and 11520 bytes of the last block' "$folder/said"
expect 'layer 3     merging, 36 bytes a token' "$folder/said"
expect 'runs        yes' "$folder/said"
"$fovea" inspect --model "$folder/blocks" --source 'the cat sees the dog' --picture "$folder/maps.svg" > "$folder/said"
expect 'layer 2 linformer: ' "$folder/said"
expect 'layer 2 linformer' "$folder/maps.svg"

refused() {
  local says=$1
  shift
  if "$fovea" train "$@" 2> "$folder/error"; then echo "not refused: $*"; exit 1; fi
  expect "$says" "$folder/error"
}
refused_language() {
  local says=$1
  shift
  refused "$says" --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" \
    --output "$folder/bad" --vocab-size 100 "$@"
  expect 'fovea train' "$folder/error"
}
refused_language "got 'glb'" --mixers glb
expect '--mixers' "$folder/error"
refused_language "got 'mamba*0'" --mixers 'mamba*0'
refused_language "got '' in 'mamba,,rwkv7'" --mixers 'mamba,,rwkv7'
refused_language "got ''" --mixers ''
refused_language "got 'gla*3', of length 3" --mixers 'gla*3'
refused_language '--max-updates' --max-updates 0 --early-stopping 0
refused_language '--dim' --mixers gla --dim 18
refused_language '--attention-dropout' --mixers mamba --attention-dropout 0.1
refused_language '--attention-dropout' --mixers mamba,gla --attention-dropout 0.1
refused_language '--attention-dropout' --mixers pooled --attention-dropout 0.1
refused_language '--heads' --mixers mamba --heads 2
# Nothing is written before the options are checked.
test ! -e "$folder/bad"
refused "--train-text" --model language --output "$folder/bad"
refused "--mixers" --model rnn --output "$folder/bad" --mixers gla

# --profile: a trace with the op of every span, and the shares of the parts.
"$fovea" train --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" --vocab-size 100 \
  --output "$folder/profiled" --max-updates 2 --window 16 --dim 16 --layers 1 --heads 2 --profile "$folder/trace.json" \
  2> "$folder/error" > /dev/null
expect 'products ' "$folder/error"
# Products with packed weights are products too.
"$fovea" generate --model "$folder/profiled" --prompt a --length 8 --weights int8 --profile "$folder/written.json" 2> "$folder/error" > /dev/null
expect '"name":"product with int8 weights","cat":"products"' "$folder/written.json"
expect '"name":"product","cat":"products","ph":"X"' "$folder/trace.json"
expect '"name":"attention, backward"' "$folder/trace.json"
refused '/no/such/folder' --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" --vocab-size 100 \
  --output "$folder/profiled2" --max-updates 1 --window 16 --dim 16 --layers 1 --heads 2 --profile /no/such/folder/trace.json
test ! -e "$folder/profiled2"  # refused before the training

# Characters, a cosine that runs, and texts longer than a window; --resume keeps the kind of pieces.
characters() { train --output "$folder/characters" --lr-schedule cosine --longest 64 "$@"; }
characters --max-updates 8 --tokenizer characters
if characters --max-updates 12 --resume --tokenizer bpe; then echo "resumed characters as bpe"; exit 1; fi
expect "'--tokenizer': expected characters" "$folder/log"
if train --output "$folder/parts" --max-updates 14 --resume --tokenizer characters; then echo "resumed bpe as characters"; exit 1; fi
expect "'--tokenizer': expected bpe" "$folder/log"
# A default length fits the room behind a prompt, for one text and for many; a prompt that does not is named.
limited() { "$fovea" generate --model "$folder/characters" --cpu-threads 1 --greedy "$@"; }
printf '{"prompt": "%s"}\n' "$(printf 'c%.0s' {1..55})" > "$folder/near.jsonl"
limited --input "$folder/near.jsonl" > "$folder/many"
limited --prompt "$(printf 'c%.0s' {1..55})" > "$folder/one"
python3 - "$folder/many" "$folder/one" <<'END'
import json, sys
answer, one = json.loads(open(sys.argv[1]).read()), open(sys.argv[2]).read()
assert 8 <= answer["tokens"] <= 10 and one.endswith(answer["text"] + "\n"), (answer, one)
END
printf '{"prompt": "%s"}\n' "$(printf 'c%.0s' {1..70})" > "$folder/near.jsonl"
for asked in "--input $folder/near.jsonl" "--prompt $(printf 'c%.0s' {1..70})"; do
  if limited $asked 2> "$folder/error"; then echo "took a prompt of 70 tokens"; exit 1; fi
  expect "the prompt': expected at most 64 tokens" "$folder/error"
done
score() { "$fovea" score text --model "$folder/characters" --input "$folder/valid.txt" --cpu-threads 1 "$@"; }
score --window 32 --json > "$folder/scored"
python3 - "$folder/scored" "$folder/valid.txt" <<'END'
import json, math, sys
scored, text = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
assert scored["tokens"] > 0.8 * len(text), scored
assert math.isclose(scored["bits_a_character"], -scored["log_probability"] / math.log(2) / len(text), rel_tol=1e-6), scored
assert math.isclose(scored["perplexity"], math.exp(-scored["log_probability"] / scored["tokens"]), rel_tol=1e-6), scored
END
if score --window 32 'a text' 2> "$folder/error"; then echo "dropped a text beside --input"; exit 1; fi
expect "'--window': expected --input beside it" "$folder/error"
if score --window 65 2> "$folder/error"; then echo "read more than --longest"; exit 1; fi
expect '64 ids' "$folder/error"
echo '{"prompt": "the", "length": 9223372036854775807}' > "$folder/long.jsonl"
if write --input "$folder/long.jsonl" 2> "$folder/error"; then echo "took a length of 2^63 - 1"; exit 1; fi
expect '9223372036854775807' "$folder/error"
if grep -qF -- '-9223372036854775807' "$folder/error"; then cat "$folder/error"; exit 1; fi
"$fovea" train --model language --train-text "$folder/train.txt" --valid-text "$folder/valid.txt" --mixers gla --layers 1 \
  --dim 34 --dim-ffn 16 --heads 17 --vocab-size 100 --window 16 --batch 2 --max-updates 1 --lr-warmup 1 --cpu-threads 1 \
  --output "$folder/heads" 2> "$folder/log" || { cat "$folder/log"; exit 1; }
"$fovea" show "$folder/heads" > "$folder/said"
if grep -q 'channels' "$folder/said"; then cat "$folder/said"; exit 1; fi
