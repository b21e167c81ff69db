#!/usr/bin/env bash
# search.sh FOVEA: tests `rank` by vectors, and the vectors of `embed`, on a folder of sentence-transformers with random weights;
# tests/models/texts_oracle.py compares with sentence-transformers.
. "$(dirname "$0")/script.bash"
mkdir -p bert/1_Pooling
cat >bert/tokenizer.json <<'END'
{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
   "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
   "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [5], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [6], "tokens": ["[SEP]"]}}},
 "decoder": null,
 "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "the": 1, "cat": 2, "dog": 3, "sat": 4, "[CLS]": 5, "[SEP]": 6, "find:": 7, "text:": 8}}}
END
cat >bert/config.json <<'END'
{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 9, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 20}
END
"$(dirname "$fovea")/tests/family_model" bert
cat >bert/modules.json <<'END'
[{"type": "sentence_transformers.models.Transformer", "path": ""},
 {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
END
echo '{"pooling_mode_mean_tokens": true}' >bert/1_Pooling/config.json
printf 'the cat\nsat the dog sat\ndog\nthe cat\nsat\n' >passages
printf 'the cat sat %.0s' $(seq 40) >>passages # longer than the model reads
echo >>passages
rank() { "$fovea" rank --model bert --cpu-threads 1 "$@"; }
embed() { "$fovea" embed --model bert --sentence --cpu-threads 1 "$@"; }

# Every similarity is that of the vectors that `embed` gives, best first.
search=bert/config_sentence_transformers.json
check() { # check SIMILARITY QUERY_PROMPT PASSAGE_PROMPT
  echo "$2the dog" | embed --prompt-name none --output query.json
  sed "s/^/$3/" passages | embed --prompt-name none --output vectors.json
  rank --query 'the dog' --input passages --json >ranked
  python3 - "$1" passages query.json vectors.json ranked <<'END' || fail "$1 with the prompts '$2' and '$3': $(cat ranked)"
import json, math, sys
name, passages = sys.argv[1], open(sys.argv[2]).read().splitlines()
(query,), vectors = (json.load(open(path)) for path in sys.argv[3:5])
ranked = [json.loads(line) for line in open(sys.argv[5])]
dot = lambda a, b: sum(x * y for x, y in zip(a, b))
scores = {"cosine": lambda a, b: dot(a, b) / math.sqrt(dot(a, a) * dot(b, b)), "dot": dot, "euclidean": lambda a, b: -math.dist(a, b),
          "manhattan": lambda a, b: -sum(abs(x - y) for x, y in zip(a, b))}
assert sorted(one["number"] for one in ranked) == list(range(len(passages))), ranked
assert [one["score"] for one in ranked] == sorted((one["score"] for one in ranked), reverse=True), ranked
for one in ranked:
    expected = scores[name](query, vectors[one["number"]])
    assert abs(one["score"] - expected) < 1e-5 * max(1, abs(expected)) and one["text"] == passages[one["number"]], (one, expected)
END
}
for similarity in cosine dot euclidean manhattan; do
  echo "{\"similarity_fn_name\": \"$similarity\", \"prompts\": {\"none\": \"\"}}" >$search
  check $similarity '' ''
done
echo '{"prompts": {"query": "find: ", "passage": "text: ", "none": ""}, "similarity_fn_name": null}' >$search
check cosine 'find: ' 'text: '
# sentence-transformers 6 writes both names, of which one may be empty.
echo '{"prompts": {"query": "find: ", "document": "", "passage": "text: ", "none": ""}}' >$search
check cosine 'find: ' ''
echo '{"prompts": {"odd": "text: ", "none": ""}, "default_prompt_name": "odd"}' >$search
check cosine 'text: ' 'text: '
rm $search
[[ $(rank --query 'the dog' --top-k 2 --input passages | wc -l) == 2 ]] || fail "--top-k"
[[ $(rank --query 'the dog' 'the cat' 'the dog' <passages | wc -l) == 2 ]] || fail "passages as arguments"
diff <(rank --query 'the dog' <passages) <(rank --query 'the dog' --input passages) || fail "standard input"
printf 'the cat\n\xff\n' >bad
refused 'bad (line 2): is not valid UTF-8' rank --query the --input bad
[[ ! -s out ]] || fail "rank wrote before it had read all"
rank --query 'the dog' --weights int8 --input passages >out || fail "--weights"
[[ -z $(rank --query 'the dog' --input /dev/null) ]] || fail "no passages"

# Prompts of `embed`: by their name, or the folder's own.
embed --input <(sed 's/^/find: /' passages) --output find.json
embed --input <(sed 's/^/text: /' passages) --output text.json
echo '{"prompts": {"query": "find: ", "odd": "text: "}, "default_prompt_name": "odd"}' >$search
embed --input passages --prompt-name query --output named.json
embed --input passages --output default.json
cmp named.json find.json || fail "--prompt-name"
cmp default.json text.json || fail "default_prompt_name"
refused "argument '--prompt-name': expected one of odd, query, got 'passage'" embed --input passages --prompt-name passage --output out.json
refused "argument '--prompt-name': expected texts and --sentence beside it" embed --ids-file passages --prompt-name query --output out.json
# A prompt whose rows do not count: the mean is over the text and [SEP].
echo '{"pooling_mode_mean_tokens": true, "include_prompt": false}' >bert/1_Pooling/config.json
echo cat | embed --prompt-name query --output vector.json
echo 'find: cat' | "$fovea" embed --model bert --hidden --output rows.json
python3 - vector.json rows.json <<'END' || fail "include_prompt: $(cat vector.json rows.json)"
import json, sys
(vector,), (rows,) = (json.load(open(path)) for path in sys.argv[1:])
assert len(rows) == 4
assert all(abs(x - (a + b) / 2) < 1e-5 for x, a, b in zip(vector, rows[2], rows[3]))
END
echo '{"pooling_mode_mean_tokens": true}' >bert/1_Pooling/config.json
echo '{"truncate_dim": 3}' >$search
[[ $(echo cat | embed --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["vector"]))') == 3 ]] || fail truncate_dim
rm $search

# What `show` says of it.
echo '{"prompts": {"query": "find: "}, "similarity_fn_name": "dot"}' >$search
"$fovea" show bert >shown
grep -qF 'sentences   one vector for each, by modules.json; dot similarity' shown && grep -qF "prompt      query: 'find: '" shown || fail "show: $(cat shown)"
"$fovea" show bert --json | python3 -c 'import json, sys; shown = json.load(sys.stdin); assert shown["similarity"] == "dot" and shown["prompts"] == {"query": "find: "}' ||
  fail "show --json"
rm $search

# A line has the bits that it has alone, beside longer ones too, in every type of weights. The empty line is one.
printf '%s\n' '' the 'the dog' 'the cat dog' 'the cat dog the' 'the cat dog the cat dog the cat dog' >lengths
for weights in f32 bf16 int8; do
  embed --input lengths --weights $weights --json >together
  while IFS= read -r line; do embed --input <(printf '%s\n' "$line") --weights $weights --json; done <lengths | cmp - together ||
    fail "lines alone and together by $weights"
done
[[ $(head -1 together) == '{"text":"",'* ]] || fail "the text of an empty line: $(head -c 99 together)"

# JSON on standard output.
embed --input passages --output vectors.json --json >lines
embed --input passages --json | cmp - lines || fail "--json with --output and without"
"$fovea" embed --model bert --input passages --hidden --json >rows
python3 - passages vectors.json lines rows <<'END' || fail "embed --json: $(head -c 500 lines)"
import json, sys
passages, vectors = open(sys.argv[1]).read().splitlines(), json.load(open(sys.argv[2]))
lines, rows = ([json.loads(line) for line in open(path)] for path in sys.argv[3:])
assert [line["text"] for line in lines] == passages and [line["vector"] for line in lines] == vectors
assert lines[0]["ids"] == [5, 1, 2, 6] and all(len(line["rows"]) == len(line["ids"]) for line in rows), rows
END
echo '5 1 2 6' | "$fovea" embed --model bert --ids-file - --hidden --json | grep -q '^{"ids":\[5,1,2,6\],"rows":\[\[' || fail "ids as JSON"
refused "argument '--output, --json, --compare': expected at least one of them, got none" embed --input passages

# What is refused, and what is no folder of vectors.
with() { # with CONFIG WORDS
  echo "$1" >$search
  refused "$2" rank --query a b
}
with '{"similarity_fn_name": "maxsim"}' "similarity_fn_name: expected cosine, dot, euclidean or manhattan, got 'maxsim'"
with '{"prompts": {"query": 1}}' 'prompts: query: expected a text, got 1'
with '{"prompts": []}' 'prompts: expected an object, got []'
with '{"truncate_dim": 0}' 'truncate_dim: expected a whole number from 1, got 0'
with '{"default_prompt_name": "odd"}' "default_prompt_name: expected the name of a prompt, got 'odd'"
# A CrossEncoder of sentence-transformers 6 has modules.json too.
with '{"model_type": "CrossEncoder"}' 'expected a model with a head for labels of texts, got BertModel'
