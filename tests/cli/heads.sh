#!/usr/bin/env bash
# heads.sh FOVEA: tests classify, tag, answer, fill and rank on folders of random models; heads_oracle.py compares them with transformers.
. "$(dirname "$0")/script.bash"
# folder CLASS [KEYS]: a tiny BERT of that class.
folder() {
  mkdir -p "$1"
  cat >"$1/tokenizer.json" <<'END'
{"version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 7, "content": "[MASK]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
 "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
   "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
   "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [5], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [6], "tokens": ["[SEP]"]}}},
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
   "vocab": {"?": 0, "the": 1, "cat": 2, "##s": 3, ".": 4, "[CLS]": 5, "[SEP]": 6, "[MASK]": 7, "sat": 8}}}
END
  cat >"$1/config.json" <<END
{"model_type": "bert", "architectures": ["$1"], "vocab_size": 9, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 20${2:+, $2}}
END
  "$(dirname "$fovea")/tests/family_model" "$1"
}
run() { # run COMMAND MODEL ...
  local command=$1 model=$2
  shift 2
  "$fovea" "$command" --model "$model" --cpu-threads 1 "$@"
}
sequence=BertForSequenceClassification tokens=BertForTokenClassification answers=BertForQuestionAnswering masked=BertForMaskedLM
folder $sequence '"id2label": {"0": "bad", "1": "fair", "2": "good"}'
# Label 0, which these random weights choose, is not that of no span.
folder $tokens '"id2label": {"0": "B-X", "1": "O", "2": "I-X"}'
folder $answers
folder $masked
printf 'The cats sat.\nthe cat\nsat sat sat\n' >texts

# Scores are cut, because rounding may differ where other rows stand beside a row; a text alone is line 1.
without_number() { sed -E 's/(0\.[0-9]{3})[0-9]*/\1/g; s/"line":[0-9]+,//' "$1"; }
# Texts as arguments, as a file and as standard input are the same; many at once say what each says alone.
for pair in "classify $sequence" "tag $tokens"; do
  read -r command model <<<"$pair"
  for json in '' --json; do
    run "$command" $model --input texts $json >file
    run "$command" $model $json <texts >input
    run "$command" $model $json 'The cats sat.' 'the cat' 'sat sat sat' >arguments
    while IFS= read -r line; do run "$command" $model $json "$line"; done <texts >alone
    for other in input arguments alone; do
      diff <(without_number file) <(without_number $other) || fail "$command $json: file and $other"
    done
  done
done

# The scores of all labels are probabilities, the best first.
[[ $(run classify $sequence --json --input texts | grep -oE '"line":[0-9]+' | tr '\n' ' ') == '"line":1 "line":2 "line":3 ' ]] ||
  fail "lines are not numbered"
run classify $sequence --top-k 0 --json --input texts | python3 -c '
import json, sys
for line in sys.stdin:
    labels = json.loads(line)["labels"]
    assert sorted(label["label"] for label in labels) == ["bad", "fair", "good"], line
    scores = [label["score"] for label in labels]
    assert abs(sum(scores) - 1) < 1e-9 and scores == sorted(scores, reverse=True), line
' || fail classify

# Spans are where they say, and begin and end at words: cats is cat and ##s.
run tag $tokens --json --input texts | python3 -c '
import json, re, sys
for line in sys.stdin:
    line = json.loads(line)
    words = [match.span() for match in re.finditer(r"\w+|\.", line["text"])]
    for span in line["spans"]:
        assert line["text"][span["begin"]:span["end"]] == span["words"] and span["label"] == "X", line
        assert span["begin"] in [begin for begin, _ in words] and span["end"] in [end for _, end in words], line
' || fail tag
grep -q X <(run tag $tokens --input texts) || fail "no span in any text"

# A long context is read in windows.
context=$(for _ in $(seq 40); do printf 'the cat sat . '; done)
run answer $answers --question 'the cats' --json --top-k 2 'The cats sat.' "$context" | python3 -c '
import json, sys
for line in sys.stdin:
    line = json.loads(line)
    assert len(line["answers"]) == 2, line
    for answer in line["answers"]:
        assert line["context"][answer["begin"]:answer["end"]] == answer["answer"] != "", line
' || fail answer
refused '--question' run answer $answers --question "$context" "$context"
[[ $(run answer $answers --question 'the cats' --top-k 2 'The cats sat.' 'The cats sat.' | grep -c '^$') == 2 ]] ||
  fail "no empty line behind the answers of a context"

# Each mask has its tokens.
run fill $masked --json --top-k 9 'the [MASK] sat [MASK]' | python3 -c '
import json, sys
line = json.loads(sys.stdin.read())
assert [(mask["begin"], mask["end"]) for mask in line["masks"]] == [(4, 10), (15, 21)], line
for mask in line["masks"]:
    assert abs(sum(token["score"] for token in mask["tokens"]) - 1) < 1e-9, line
    assert sorted(token["id"] for token in mask["tokens"]) == list(range(9)), line
' || fail fill
[[ $(run fill $masked --top-k 2 '[MASK] cat' | grep -c cat) == 2 ]] || fail "fill prints no texts"
refused "expected a text with [MASK], got 'the cat'" run fill $masked 'the cat'

# The best passage first, as often as it is there.
folder BertForSequenceClassification '"num_labels": 1'
run rank $sequence --query 'the cat' --json 'sat' 'the cats' 'sat' | python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert sorted(line["number"] for line in lines) == [0, 1, 2], lines
scores = [line["score"] for line in lines]
assert scores == sorted(scores, reverse=True) and 0 < scores[2] and scores[0] < 1, lines
same = [line["score"] for line in lines if line["text"] == "sat"]
assert abs(same[0] - same[1]) < 1e-6, lines
' || fail rank
[[ $(run rank $sequence --query a --top-k 2 b c d | wc -l) == 2 ]] || fail "--top-k of rank"

# Translators with a head read a text twice, and give the row of its end.
bart() { # bart CLASS [KEYS]: a tiny BART of that class, whose tokenizer ends texts and pairs with </s>.
  mkdir -p "$1"
  cat >"$1/tokenizer.json" <<'END'
{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "WhitespaceSplit"},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
   "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
   "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
 "decoder": null,
 "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"<pad>": 0, "</s>": 1, "?": 2, "the": 3, "cat": 4, "sat": 5}}}
END
  cat >"$1/config.json" <<END
{"model_type": "bart", "architectures": ["$1"], "vocab_size": 6, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
 "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12,
 "max_position_embeddings": 20, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 1${2:+, $2}}
END
  "$(dirname "$fovea")/tests/family_model" "$1"
}
bart BartForSequenceClassification '"id2label": {"0": "bad", "1": "good"}'
bart BartForQuestionAnswering
printf 'the cat sat\ncat\n' >two
run classify BartForSequenceClassification --json --input two >together
while IFS= read -r line; do run classify BartForSequenceClassification --json "$line"; done <two >alone
diff <(without_number together) <(without_number alone) || fail "classify by BART"
[[ $(run answer BartForQuestionAnswering --question 'the cat' 'the cat sat' | wc -l) == 1 ]] || fail "answer by BART"
"$fovea" inspect --model BartForSequenceClassification --source 'the cat' --json | grep -q '"encoder.self layer 1"' || fail "inspect of BART"
refused 'has a head for labels of texts' run answer BartForSequenceClassification --question the cat
refused 'expected a language model' "$fovea" generate --model BartForSequenceClassification --prompt-ids 3
if run translate BartForSequenceClassification --input two >out 2>errors; then fail "translates with a head for labels"; fi
grep -q 'expected a translator.*got BartForSequenceClassification' errors || fail "$(cat errors)"
bart BartForSequenceClassification '"num_labels": 1'
[[ $(run rank BartForSequenceClassification --query the 'cat sat' sat | wc -l) == 2 ]] || fail "rank by BART"
sed -i 's/, {"SpecialToken": {"id": "<\/s>", "type_id": 0}}//' BartForSequenceClassification/tokenizer.json
refused "text 1: expected a text that the tokenizer ends with the id 1" run classify BartForSequenceClassification 'the cat'

# What is refused.
refused 'expected a model with a head for labels of texts, got BertForMaskedLM, which has a head for masked ids' run classify $masked the
refused 'expected a model with a head for answers' run answer $tokens --question the cat
refused 'expected a model with a head for labels of ids' run tag $sequence the
refused 'expected a model with a head for masked ids' run fill $answers the
folder $sequence '"id2label": {"0": "bad", "1": "good"}'
refused 'expected a model with one label' run rank $sequence --query the cat
refused "text 2: expected at most the 20 ids that the model reads, or --truncate, got 162" run classify $sequence the "$context"
[[ $(run classify $sequence --truncate the "$context" | wc -l) == 2 ]] || fail --truncate
# The others are answered, each at its place, and as they come.
printf '%s\n' 'the cat' $'\xff' "$context" '' 'the cat' >mixed
refused '2 of 5 lines failed' run classify $sequence --input mixed
grep -qF 'mixed (line 2): is not valid UTF-8' errors && grep -qF 'mixed (line 3): expected at most the 20 ids' errors || fail "$(cat errors)"
[[ -n $(sed -n 1p out) && $(sed -n 1p out) == $(sed -n 5p out) && $(sed -n '2,3p' out | tr -d '\n') == '' ]] || fail "$(cat out)"
refused '2 of 5 lines failed' run classify $sequence --input mixed --json
[[ $(grep -c '^{"line":[23],"error":' out) == 2 && $(wc -l <out) == 5 ]] || fail "$(cat out)"
refused 'standard input (line 2): is not valid UTF-8' run tag $tokens <mixed
refused 'mixed (line 2): is not valid UTF-8' "$fovea" tokenize --model $sequence --input mixed
[[ $(sed -n 1p out) == $(sed -n 5p out) && -n $(sed -n 3p out) && -z $(sed -n 2p out) ]] || fail "tokenize: $(cat out)"
coproc talk { exec "$fovea" classify --model $sequence 2>/dev/null; }
pid=$talk_PID # Bash forgets talk_PID as soon as it sees the end of the process.
echo 'the cat' >&"${talk[1]}"
IFS= read -t 60 -r answer <&"${talk[0]}" || fail "no answer before the input's end"
kill "$pid"
wait "$pid" || true
# An argument between brackets is a text, and not a list.
for text in '[MASK]' '[the cat, [MASK]]' '[MASK] the, cat [MASK]'; do
  printf '%s\n' "$text" >line
  cmp <(run fill $masked --json "$text") <(run fill $masked --json --input line) || fail "the argument '$text'"
done
cmp <(run classify $sequence --json '[the cat, sat]' 'the cat') <(printf '[the cat, sat]\nthe cat\n' | run classify $sequence --json) ||
  fail "two arguments, of which one is between brackets"
mkdir '[odd]'
cp $sequence/* '[odd]'
run classify '[odd]' 'the cat' >out || fail "a folder between brackets"

# A text may spell the padding, which has no position of its own in RoBERTa.
folder Padded
sed -i 's/"bert"/"roberta"/; s/"Padded"/"RobertaForSequenceClassification"/; s/"vocab_size"/"pad_token_id": 4, "vocab_size"/' Padded/config.json
"$(dirname "$fovea")/tests/family_model" Padded
run classify Padded 'the . cat' '.' 'the cat' >out || fail "texts with the padding"
[[ $(wc -l <out) == 3 ]] || fail "three texts, got $(cat out)"

# Every head of every layer as maps over tokens or words; rows are distributions.
"$fovea" inspect --model $sequence --source 'The cats sat.' --json >maps
"$fovea" inspect --model $sequence --source 'The cats sat.' --json --over words >words
python3 - maps words <<'END' || fail "inspect: $(cat maps)"
import json, sys
tokens, words = (json.load(open(name))["maps"] for name in sys.argv[1:])
assert [one["name"] for one in tokens] == ["encoder.self layer 1", "encoder.self layer 2"]
assert tokens[0]["queries"] == tokens[0]["keys"] == ["[CLS]", "The", "cat", "##s", "sat", ".", "[SEP]"], tokens[0]["keys"]
assert words[0]["queries"] == ["[CLS]", "The", "cats", "sat", ".", "[SEP]"], words[0]["queries"]
for maps in (tokens, words):
    for one in maps:
        assert one["heads"] == len(one["weights"]) == 2
        assert all(abs(sum(row) - 1) < 1e-5 for head in one["weights"] for row in head)
END
"$fovea" inspect --model $sequence --source 'The cats sat.' --html page.html --picture maps.svg --graph graph.svg --word cats >out
grep -q 'what “cats” attends to' graph.svg && grep -q 'encoder.self layer 2' maps.svg && [[ $(head -c 4 page.html) == '<!DO' ]] || fail "pictures"
weights() { python3 -c 'import json, sys; print([one["weights"] for one in json.load(open(sys.argv[1]))["maps"]])' "$1"; }
"$fovea" inspect --model $sequence --source 'The cats sat.' --json --weights int8 >coarse
python3 - maps coarse <<'END' || fail "inspect --weights: $(cat coarse)"
import json, sys
exact, coarse = ([x for one in json.load(open(name))["maps"] for head in one["weights"] for row in head for x in row] for name in sys.argv[1:])
assert 0 < max(abs(x - y) for x, y in zip(exact, coarse)) < 0.1
END
"$fovea" inspect --model $sequence --source-ids '5 1 2 3 8 4 6' --json >numbers
[[ $(weights maps) == "$(weights numbers)" ]] || fail "ids in the place of a text"
refused 'the model reads one text' "$fovea" inspect --model $sequence --source a --target b --json
refused 'one of them, got both' "$fovea" inspect --model $sequence --source a --source-ids 1 --json
refused 'at least one of them' "$fovea" inspect --model $sequence --source 'the cat'
refused 'expected ids below 9, the number of' "$fovea" inspect --model $sequence --source-ids '1 9' --json

# `convert` says why a model is refused, and leaves no folder behind.
cp -r $sequence unknown
sed -i 's/"bert"/"odd_bert"/' unknown/config.json
refused 'odd_bert' "$fovea" convert --model unknown --output converted
sed -i 's/"odd_bert"/"bert", "novelty": 3/' unknown/config.json
refused 'novelty' "$fovea" convert --model unknown --output converted
[[ ! -e converted ]] || fail "a folder of a model that was refused"

refused "argument '--input': expected nothing beside texts as arguments" run classify $sequence --input texts the
rm $sequence/tokenizer.json
refused 'tokenizer.json' run classify $sequence the
"$fovea" show $tokens | grep -qF 'labels      B-X, O, I-X' || fail "show: $("$fovea" show $tokens)"
refused 'expected a language model' "$fovea" generate --model $tokens --prompt-ids 1
