#!/usr/bin/env bash
# tokenize.sh FOVEA: tests `fovea tokenize`, and `fovea generate` and `fovea show` of a folder with a tokenizer.json.
set -euo pipefail
fovea=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$fovea")/tests/language_model" "$work/model"
cd "$work"
fail() {
  echo "tokenize: $*" >&2
  exit 1
}
# refused WORDS COMMAND...: the command fails, and says WORDS.
refused() {
  local words=$1
  shift
  if "$@" >out 2>errors; then fail "took $*"; fi
  grep -qF -- "$words" errors || fail "expected '$words', got '$(cat errors)'"
}
cat >tokenizer.json <<'END'
{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": {"type": "Lowercase"},
 "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
 "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "the": 1, "cat": 2, "sat": 3, ".": 4}}}
END
tokenize() { "$fovea" tokenize --model tokenizer.json "$@"; }

printf 'The cat sat.\n\nA dog\n' >texts
[[ $(tokenize --input texts | paste -sd '|') == '1 2 3 4||0 0' ]] || fail "ids: $(tokenize --input texts)"
[[ $(tokenize --pieces <texts | paste -sd '|') == 'the cat sat .||? ?' ]] || fail "pieces: $(tokenize --pieces <texts)"
[[ $(echo '1 2 9 4' | tokenize --decode) == 'the cat .' ]] || fail "decoded: $(echo '1 2 9 4' | tokenize --decode)"
echo '"a \u0022cat\""' | tokenize --json | grep -qF '"offsets":[[0,1],[2,3],[3,6],[6,7]]' || fail "offsets"
echo '["the", "cat"]' | tokenize --json | grep -qF '"ids":[1,2]' || fail "a pair"
tokenize --write written.json
"$fovea" tokenize --model written.json --write again.json
cmp written.json again.json || fail "the written file is read as another one"

refused 'expected one text or two, got 3' tokenize --json --input <(echo '["a", "b", "c"]')
refused 'line 2' tokenize --json --input <(printf '"a"\n"b\n')
refused 'token ids between blanks' tokenize --decode --input <(echo 'a b')
refused 'nothing/tokenizer.json' "$fovea" tokenize --model nothing/tokenizer.json
sed 's/Lowercase/Odd/' tokenizer.json >odd.json
refused 'normalizer.type: expected BertNormalizer' "$fovea" tokenize --model odd.json

# A model with that tokenizer: texts are what the ids are.
cp tokenizer.json model
"$fovea" show model | grep -qF 'tokenizer   WordLevel, 5 ids' || fail "show: $("$fovea" show model)"
"$fovea" generate --model model 'the cat' --length 12 --greedy --cpu-threads 1 >text
ids=$("$fovea" generate --model model --prompt-ids '1 2' --length 12 --greedy --cpu-threads 1)
both=$(echo "1 2 $ids" | tokenize --decode)
[[ "the cat$(cat text)" == "$both" ]] || fail "a text of '$(cat text)', ids of '$both'"
refused 'a model whose lines are ids of their own' "$fovea" generate --model model a --line
sed 's/"\.": 4/".": 1000000/' tokenizer.json >model/tokenizer.json
refused 'is too large for 5 tokens' "$fovea" generate --model model a
sed 's/"\.": 4/".": 1020/' tokenizer.json >model/tokenizer.json
refused 'the tokenizer has ids up to 1020' "$fovea" generate --model model a
