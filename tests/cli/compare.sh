#!/usr/bin/env bash
# compare.sh FOVEA: tests `score text --compare` and `embed --compare`, which say what int8 and bf16 weights change.
. "$(dirname "$0")/script.bash"
mkdir -p gpt2 bert/1_Pooling
cat >gpt2/config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 60}
END
cat >bert/config.json <<'END'
{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 60}
END
for model in gpt2 bert; do "$(dirname "$fovea")/tests/family_model" $model; done
echo '{"pooling_mode_mean_tokens": true}' >bert/1_Pooling/config.json
cat >bert/modules.json <<'END'
[{"type": "sentence_transformers.models.Transformer", "path": ""}, {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
END
{ seq -s ' ' 1 39 && echo 5 && echo '7 7 3 22 9' && seq -s ' ' 20 2 38; } >ids
score() { "$fovea" score text --model gpt2 --ids-file ids --cpu-threads 1 "$@"; }
embed() { "$fovea" embed --model "$1" --ids-file ids --cpu-threads 1 "${@:2}"; }

# Behind several texts there is a line for all.
score >lines
score --json >objects
python3 - lines objects <<'END' || fail "the line for all: $(cat lines)"
import json, math, sys
last, objects = open(sys.argv[1]).read().splitlines()[-1].split("\t"), [json.loads(line) for line in open(sys.argv[2])]
total, tokens = sum(one["log_probability"] for one in objects), sum(len(one["log_probabilities"]) for one in objects)
assert len(objects) == 4 and last[3] == "all" and int(last[1]) == tokens == 51, last
assert abs(float(last[0]) - total) < 1e-3 and abs(float(last[2]) - math.exp(-total / tokens)) < 1e-2, last
END

# The report is that of the logits and hidden states that `embed` writes, without the last row of each text.
for weights in int8 bf16; do
  for type in f32 $weights; do
    embed gpt2 --logits --weights $type --output logits.$type.json
    embed gpt2 --hidden --weights $type --output hidden.$type.json
  done
  score --weights $weights --compare f32 --json >report
  python3 - $weights ids report <<'END' || fail "$weights: $(cat report)"
import json, math, sys
weights, (ids, report) = sys.argv[1], map(open, sys.argv[2:])
texts, report = [list(map(int, line.split())) for line in ids], json.load(report)
load = lambda what, type: [rows[:-1] for rows in json.load(open(f"{what}.{type}.json"))]
def relative(what):
    pairs = [(x, y) for a, b in zip(load(what, "f32"), load(what, weights)) for r, s in zip(a, b) for x, y in zip(r, s)]
    return math.sqrt(sum((x - y) ** 2 for x, y in pairs) / sum(x * x for x, _ in pairs))
def probabilities(type):
    logs = []
    for rows, text in zip(load("logits", type), texts):
        for row, token in zip(rows, text[1:]):
            logs.append(row[token] - math.log(sum(map(math.exp, row))))
    return logs
best = [[max(range(len(row)), key=row.__getitem__) for rows in load("logits", type) for row in rows] for type in ("f32", weights)]
exact, given = probabilities("f32"), probabilities(weights)
expected = {"weights": weights, "compared_with": "f32", "tokens": len(exact), "hidden_relative_error": relative("hidden"), "logits_relative_error": relative("logits"),
            "largest_log_probability_difference": max(abs(a - b) for a, b in zip(exact, given)),
            "same_best_token": sum(a == b for a, b in zip(*best)) / len(exact),
            "perplexity": math.exp(-sum(given) / len(given)), "compared_perplexity": math.exp(-sum(exact) / len(exact))}
assert list(report) == list(expected), report
for name, value in expected.items():
    assert report[name] == value if isinstance(value, (str, int)) else math.isclose(report[name], value, rel_tol=1e-3, abs_tol=1e-6), (name, value)
assert 1e-5 < report["logits_relative_error"] < 0.1
END
done
score --weights int8 --compare f32 >report
[[ $(cut -c 1-17 report | tr -s ' ' | paste -sd '|') == 'weights |hidden states |logits |log-probability |best token |perplexity ' ]] || fail "the report: $(cat report)"
grep -q '^weights          int8 beside f32, over 51 tokens$' report || fail "the report: $(cat report)"

# Of vectors and rows: their relative error and cosines, beside the numbers or alone.
vectors() { embed bert --sentence --weights "$1" "${@:2}"; }
vectors f32 --output f32.json
vectors int8 --output int8.json --compare f32 >report
grep -q '^cosine           0\.99[0-9]* in the mean, 0\.9[0-9]* at least$' report || fail "the report: $(cat report)"
vectors int8 --json --compare f32 | tail -1 >report
python3 - f32.json int8.json report <<'END' || fail "vectors: $(cat report)"
import json, math, sys
exact, given, report = (json.load(open(path)) for path in sys.argv[1:])
dot = lambda a, b: sum(x * y for x, y in zip(a, b))
cosines = [dot(a, b) / math.sqrt(dot(a, a) * dot(b, b)) for a, b in zip(exact, given)]
error = math.sqrt(sum((x - y) ** 2 for a, b in zip(exact, given) for x, y in zip(a, b)) / sum(dot(a, a) for a in exact))
expected = {"rows": 4, "relative_error": error, "mean_cosine": sum(cosines) / 4, "least_cosine": min(cosines)}
assert report["weights"] == "int8" and report["compared_with"] == "f32"
assert all(math.isclose(report[name], value, rel_tol=1e-4) for name, value in expected.items()), expected
END
embed bert --hidden --weights bf16 --compare f32 | grep -q '^weights          bf16 beside f32, over 55 rows$' || fail "rows: $(embed bert --hidden --weights bf16 --compare f32)"

refused "argument '--compare': expected other weights than those of --weights, such as int8, got f32" score --compare f32
refused "argument '--compare': expected other weights than those of --weights, such as int8, got f32" embed bert --hidden --compare f32
refused "argument '--compare': expected no --window beside it" score --window 3 --weights int8 --compare f32
echo 5 >ids
refused "argument '--compare': expected a text of two tokens at least, got none" score --weights int8 --compare f32
