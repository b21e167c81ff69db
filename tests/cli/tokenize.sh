#!/usr/bin/env bash
# tokenize.sh FOVEA: tests `fovea tokenize`, and `fovea generate` and `fovea show` of a folder with a tokenizer.json.
. "$(dirname "$0")/script.bash"
mkdir pieces
"$(dirname "$fovea")/tests/language_model" model pieces
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
"$fovea" generate --model model 'the cat' --length 3 --greedy --cpu-threads 1 >/dev/null || fail "a tokenizer with more ids than the model"
refused "expected tokens that the model has, whose ids are from 0 to" "$fovea" generate --model model 'the cat.'
grep -qF "got '.', whose id is 1020" errors || fail "$(cat errors)"
printf '{"prompt": "the cat", "length": 2}\n{"prompt": "the."}\n' >more.jsonl
refused 'more.jsonl (line 2)' "$fovea" generate --model model --input more.jsonl
[[ $(grep -c '"finish":"length"' out) == 1 ]] || fail "the other line: $(cat out)"
[[ $(echo 'the cat' | "$fovea" tokenize --model model --input -) == '1 2' ]] || fail "--input -"

# A tokenizer that adds no id gives none for an empty text.
cp tokenizer.json model
refused "argument '--prompt': expected a text of at least one id, got no id of ''" "$fovea" generate --model model ''
echo '{"prompt": " "}' >empty.jsonl
refused "\"prompt\": expected a text of at least one id, got no id of ' '" "$fovea" generate --model model --input empty.jsonl

# Options that would change nothing are refused, and so are outputs that are the tokenizer itself.
refused "argument '--keep-special': expected --decode beside it" tokenize --keep-special --input texts
refused "argument '--pieces': expected nothing beside --decode" tokenize --pieces --decode --input texts
refused "argument '--pieces': expected nothing beside --json" tokenize --pieces --json --input texts
refused "argument '--plain': expected nothing beside --decode" tokenize --plain --decode --input texts
for option in '--input texts' --decode '--output ids' --json; do
  refused "argument '${option%% *}': expected nothing beside --write" tokenize --write new.json $option
done
[[ ! -e new.json ]] || fail "written in spite of the error"
cp tokenizer.json before.json
refused "argument '--output': expected a file other than that of --model" tokenize --input texts --output tokenizer.json
refused "argument '--write': expected a file other than that of --model" "$fovea" tokenize --model . --write ./tokenizer.json
cmp before.json tokenizer.json || fail "the tokenizer was overwritten"
refused '(line 2)' tokenize --decode --input <(printf '1 2\n1 x\n')
[[ $(head -n 1 errors | grep -o fovea | wc -l) == 1 ]] || fail "the name is there twice: $(cat errors)"

# Ids of which each has one byte of a character: a text in parts is the whole text.
python3 - >model/tokenizer.json <<'END'
import json
vocab = {"?": 0, "\u0120": 1}
vocab.update({f"x{i}\u00c3" if i % 2 else f"\u00a9y{i}": i for i in range(2, 14)})
print(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": vocab}}))
END
generate() { "$fovea" generate --model model --cpu-threads 1 --seed 5 "$@"; }
generate 'a' --length 24 >whole
generate 'a' --length 0 --save-state state | tr -d '\n' >parts
for _ in $(seq 23); do generate --load-state state --save-state state --length 1 | tr -d '\n' >>parts; done
generate --load-state state --length 1 >>parts
grep -q 'é' whole || fail "no character of two ids in '$(cat whole)'"
cmp whole parts || fail "a text in parts is '$(cat parts)', the whole one '$(cat whole)'"

# A folder of ours has a tokenizer too.
rm model/tokenizer.json
"$fovea" show model | grep -qE '^tokenizer   (SentencePiece, [0-9]+ pieces|[0-9]+ words)$' || fail "$("$fovea" show model)"

printf 'the cat\n\na zebra\n' >texts
[[ $("$fovea" tokenize --model model --input texts --pieces | paste -sd '|') == 'the cat||a <unk>' ]] || fail "words of ours"
"$fovea" tokenize --model pieces --input texts >ids
[[ $("$fovea" tokenize --model pieces --decode <ids | head -1) == 'the cat' ]] || fail "pieces of ours"

# Marian's files: pieces of source.spm, and ids of vocab.json.
mkdir marian
for side in source target; do cp pieces/spm.model "marian/$side.spm"; done
"$fovea" tokenize --model pieces --input texts --pieces >spelt
python3 - >marian/vocab.json <<'END'
import json
pieces = sorted(set(open("spelt", encoding="utf-8").read().split()) - {"<unk>"})
print(json.dumps({piece: 3 * i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}))
END
marian() { "$fovea" tokenize --model marian "$@"; }
marian --input texts --pieces >got
[[ $(head -1 got) == "$(head -1 spelt) </s>" && $(sed -n 2p got) == '</s>' ]] || fail "pieces of Marian: $(cat got)"
marian --input texts --plain --pieces >got
cmp spelt got || fail "pieces of Marian without </s>: $(cat got)"
marian --input texts >ids
[[ $(sed -n 2p ids) == 0 ]] || fail "ids of an empty text: $(sed -n 2p ids)"
[[ $(marian --decode <ids | head -2 | paste -sd '|') == 'the cat|' ]] || fail "texts of Marian: $(marian --decode <ids)"
# The bytes that ids stand for, which a code and </s> have too.
echo '">>fr<< the  zebra"' | marian --json >got
python3 - got <<'END' || fail "bytes of Marian: $(cat got)"
import json
import sys
text = ">>fr<< the  zebra"
got = json.load(open(sys.argv[1]))
assert got["tokens"][-1] == "</s>" and got["special"] == [0] * (len(got["ids"]) - 1) + [1], got
assert got["offsets"][0] == [0, 6] and got["offsets"][-1] == [0, 0] and got["words"][-1] == -1, got
parts = [text[begin:end] for begin, end in got["offsets"][:-1]]
assert "".join(parts).replace(" ", "") == ">>fr<<thezebra", parts
words = {}
for part, word in zip(parts, got["words"]):
    words[word] = words.get(word, "") + part
assert [word.strip() for word in words.values()] == [">>fr<<", "the", "zebra"], words
END
echo '"the cat"' | "$fovea" tokenize --model pieces --json | grep -qF '"offsets":[[0,3],' || fail "bytes of ours"
echo '"a  zebra the"' | "$fovea" tokenize --model model --json | grep -qF '"offsets":[[0,1],[3,8],[9,12]],' || fail "bytes of words"
[[ $(echo "$(head -1 ids)" | marian --decode --json) == '"the cat"' ]] || fail "texts of Marian as JSON"
refused 'expected one text, because only a tokenizer.json joins two, got 2' marian --json --input <(echo '["a", "b"]')
for option in --limits '--keep-special --decode' '--write new.json'; do
  refused "argument '${option%% *}': expected a --model with a tokenizer.json" marian $option
done
refused 'token ids between blanks' marian --decode --input <(echo 'a b')
refused 'line 2' marian --input <(printf 'a\n\xff\n')
refused "argument '--output': expected a file other than that of --model" marian --input texts --output marian/vocab.json
rm marian/target.spm
refused 'marian/target.spm: is not there, and source.spm is' marian
mkdir t5 && cp pieces/spm.model t5/spiece.model
refused 't5/spiece.model: does not say the ids' "$fovea" tokenize --model t5

# A folder of sentence-transformers that names no longest text has that of its model, here 400 ids.
cp -r model sentences && cp tokenizer.json sentences && mkdir sentences/1_Pooling
cat >sentences/modules.json <<'END'
[{"type": "sentence_transformers.models.Transformer", "path": ""},
 {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
END
echo '{"pooling_mode_lasttoken": true}' >sentences/1_Pooling/config.json
embed() { "$fovea" embed --model sentences --sentence --cpu-threads 1 "$@"; }
for count in 400 500; do
  { for _ in $(seq "$count"); do printf 'the '; done && echo; } >line
  embed --input line --output "$count.npy" || fail "$count words"
done
cmp 400.npy 500.npy || fail "a text beyond the positions is not cut at them"
echo '{"max_seq_length": 2}' >sentences/sentence_bert_config.json
echo '{"truncation_side": "left"}' >sentences/tokenizer_config.json
echo 'the cat sat .' >whole
echo 'sat .' >end
embed --input whole --output left.npy
embed --input end --output alone.npy
cmp left.npy alone.npy || fail "truncation_side is not honoured"
