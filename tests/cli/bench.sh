#!/usr/bin/env bash
# bench.sh FOVEA: tests the form of the report of `fovea bench kernels`, not its times. Every row has a limit, a share and
# the name of its bound; every peak and every rival is measured or reported as absent.
set -euo pipefail
fovea=$1
command -v python3 >/dev/null || {
  echo "not run: no python3 to read the report"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$fovea" bench kernels --quick --cpu-threads 1 --json "$work/report.json" >"$work/table"
printf 'before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n' >"$work/page.md"
"$fovea" bench kernels --from "$work/report.json" --markdown "$work/page.md" >"$work/again"
"$fovea" bench kernels --quick --list >"$work/names"
"$fovea" bench kernels --quick --cpu-threads 1 --only 'decode f32' --json - >"$work/decode.json"
# If no kernel takes f32 in bf16 terms, the portable kernel is forced, to see that such rows report their errors.
"$fovea" bench kernels --quick --cpu-threads 1 --only "hig" --kernel tiles --json "$work/terms.json" >/dev/null
# A rival whose process does not answer is absent; this is no error.
"$fovea" bench kernels --quick --cpu-threads 1 --only 'decode f32' --rivals "$work/no-such-python" \
  --rivals-script "$0" --json "$work/mute.json" >/dev/null
# A rival that crashes the process is left out of that row, and the others are measured.
cat >"$work/rivals.py" <<'END'
import json, os, sys
names = ["torch sdpa", "onednn"]
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    if request["do"] == "list":
        answer = {"rivals": [{"name": name, "library": "none", "version": "0"} for name in names]}
    elif request["do"] == "prepare":
        answer = {"prepared": []}
        for name in names:
            if name in request["without"]:
                continue
            print(json.dumps({"preparing": name}), flush=True)
            if name == "torch sdpa":
                os._exit(1)
            answer["prepared"].append({"name": name, "error": 0.0, "seconds": 1e-3})
    elif request["do"] == "run":
        answer = {"seconds": [1e-3] * request["count"]}
    print(json.dumps(answer), flush=True)
END
"$fovea" bench kernels --quick --cpu-threads 1 --only 'decode f32' --rivals python3 \
  --rivals-script "$work/rivals.py" --json "$work/ended.json" >/dev/null
# Errors: a file that is no report, a page without a place for the table, a row that does not exist.
for wrong in "--from $work/table" "--from $work/report.json --markdown $work/table" "--quick --only nothing"; do
  if "$fovea" bench kernels $wrong >/dev/null 2>"$work/error"; then
    echo "accepted: $wrong"
    exit 1
  fi
  grep -qE '^fovea( [a-z]+)*: ' "$work/error"
done

python3 - "$work" <<'END'
import json, math, pathlib, sys

work = pathlib.Path(sys.argv[1])
report = json.loads((work / "report.json").read_text())
names = (work / "names").read_text().split("\n")[:-1]
table = (work / "table").read_text()
page = (work / "page.md").read_text()
positive = lambda number: math.isfinite(number) and number > 0

assert [row["name"] for row in report["rows"]] == names and len(set(names)) == len(names), "a row for every name"
groups = {row["group"] for row in report["rows"]}
assert groups == {"prefill", "high", "higher", "backward", "sentences", "window", "documents", "decode", "small", "additive", "odd"}, groups
assert {row["dtype"] for row in report["rows"]} == {"f32", "bf16", "f16"}
for peak in report["peaks"].values():
    assert peak.get("absent") or positive(peak["one_thread"]) and positive(peak["all_threads"]), peak
assert positive(report["peaks"]["fma_f32"]["one_thread"]) and positive(report["peaks"]["read"]["all_threads"])
assert len(report["rivals"]) == 6 and all(rival["absent"] for rival in report["rivals"]), "no rivals in a quick run"
for row in report["rows"]:
    assert row["name"] in table, row["name"]
    if row["group"] in ("high", "higher") and row.get("absent"):  # on CPUs without AMX
        continue
    assert not row.get("absent"), row
    assert positive(row["seconds"]["median"]) and positive(row["share"]) and positive(row["pairs"]), row
    limit = row["limit"]
    parts = {part: limit[part + "_seconds"] for part in ("product", "exponential", "tanh", "byte") if part + "_seconds" in limit}
    assert len(parts) == 3 and all(positive(part) for part in parts.values()), limit
    bound = "byte" if limit["bound"] == "bytes" else limit["bound"]
    assert limit["seconds"] == max(parts.values()) == parts[bound], limit
    assert abs(row["share"] - limit["seconds"] / row["seconds"]["median"]) < 1e-9
    assert ("beside" in row) == (row["mask"] != "everything" or row["group"] in ("odd", "high", "higher")), row["name"]
    assert "beside" not in row or positive(row["beside"]["ratio"]), row

# The work by the pairs that the mask keeps, computed again.
def row_of(name):
    return next(row for row in report["rows"] if row["name"] == name)
causal = row_of("prefill f32 forward 1,2,2,96,96,64 causal")
assert causal["pairs"] == 2 * 96 * 97 / 2 and causal["flops"] == causal["pairs"] * 4 * 64
assert causal["bytes"] == 4 * 4 * 2 * 96 * 64
backward = row_of("backward bf16 backward 1,4,2,64,64,128 everything")
assert backward["flops"] == 4 * 64 * 64 * 10 * 128 and backward["bytes"] == 2 * 4 * (4 + 2) * 64 * 128

assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
assert all(row["shape"] in page for row in report["rows"])
again = (work / "again").read_text().split("\n")
assert set(line for line in table.split("\n") if line.startswith("prefill")) <= set(again), "the same table from a report"
terms = json.loads((work / "terms.json").read_text())["rows"]
assert {row["group"] for row in terms} == {"high", "higher"}
assert all(1e-7 < row["error"] < 1e-5 if row["group"] == "high" else 1e-9 < row["error"] < 1e-6 for row in terms), terms
assert all(row["beside"]["name"] == "full" and row["kernel"] == "portable tiles" for row in terms), terms
decode = json.loads((work / "decode.json").read_text())
assert len(decode["rows"]) == 1
mute = json.loads((work / "mute.json").read_text())
ended = {rival["name"]: rival for rival in json.loads((work / "ended.json").read_text())["rows"][0]["rivals"]}
assert "its process ended" in ended["torch sdpa"]["refused"], ended
assert positive(ended["onednn"]["ratio"]), ended
assert all("does not answer" in rival["absent"] for rival in mute["rivals"]), mute["rivals"]
END

# Training: a row for each number of threads, with parts that add up.
"$fovea" bench train --models language,rnn --threads 1,2 --precision f32,bf16 --vocabulary 50 --mini-batch-words 300 --rounds 1 --updates 1 > "$work/train"
python3 - "$work/train" <<'END'
import re, sys
rows = [line.split() for line in open(sys.argv[1]) if re.match(r"(language|rnn)\s", line)]
expected = [(model, precision, threads) for model in ("language", "rnn") for precision in ("f32", "bf16") for threads in ("1", "2")]
assert sorted(tuple(row[:3]) for row in rows) == sorted(expected), rows
for line in open(sys.argv[1]):
    if re.match(r"(language|rnn)\s", line):
        parts = [int(share) for share in re.findall(r"[a-z-]+ (\d+)", line.split("%", 1)[1])]
        assert "products" in line and 90 <= sum(parts) <= 105, line
END
# Another library takes a turn behind each of Fovea's, with Fovea's weights and batch; what it refuses is told once. Where its
# loss or gradient norm of the first batch is another, the refusal names both numbers, and the numbers of Fovea are accepted.
cat > "$work/train_rivals.py" <<'END'
import json, os, pathlib, sys
lengths = None
first = {key: float(os.environ.get(key, "7")) for key in ("loss", "gradient_norm")}
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    if request["do"] == "list":
        answer = {"rivals": [{"name": name, "library": "none", "version": "0"} for name in ("torch eager", "torch compiled")]}
    elif request["do"] == "prepare":
        lengths = request["source_lengths"]
        assert request["model"] == "rnn" and request["precisions"] == ["f32"] and request["vocabulary"] == 50
        assert pathlib.Path(request["weights"]).exists()
        for side in ("source", "target"):
            assert len(request[side]) == len(lengths) * max(request[side + "_lengths"])
        answer = {"prepared": [{"name": "torch eager", **first}, {"name": "torch compiled", "refused": "no compiler"}]}
    elif request["do"] == "run":
        answer = {"seconds": [1e-3 * len(lengths) * request["threads"]] * request["count"]}
    print(json.dumps(answer), flush=True)
END
training=("$fovea" bench train --models rnn --threads 1,2 --vocabulary 50 --mini-batch-words 280 --rounds 1 --updates 1 --rivals python3
  --rivals-script "$work/train_rivals.py")
export loss=7 gradient_norm=7
for number in loss gradient_norm; do
  "${training[@]}" > "$work/beside"
  found=$(sed -n "s/.*torch eager *the ${number/_/ } of the first batch is 7, Fovea's is \([0-9.]*\), by the same weights.*/\1/p" "$work/beside")
  [[ -n $found ]] || { cat "$work/beside"; exit 1; }
  export "$number=$found"
done
loss=$(python3 -c "print($loss * 1.00001)") || exit 1
"${training[@]}" > "$work/beside"
grep -q 'torch eager *the loss of the first batch' "$work/beside" || { echo "bench train: a loss that rounding does not explain"; exit 1; }
loss=$(python3 -c "print($loss / 1.00001)") || exit 1
"${training[@]}" > "$work/beside"
unset loss gradient_norm
[[ $(grep -c 'torch compiled *no compiler' "$work/beside") == 1 ]] || { cat "$work/beside"; exit 1; }
grep -q 'torch eager *20.00 ms' "$work/beside" && grep -q 'torch eager *40.00 ms' "$work/beside" || { cat "$work/beside"; exit 1; }
# A signal leaves nothing in the folder for temporary files: not the weights, nor what the rival's script makes of them.
cat > "$work/waiting_rivals.py" <<'END'
import json, pathlib, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "prepare":
        pathlib.Path(sys.argv[0]).with_suffix(".preparing").touch()
        time.sleep(60)
    print(json.dumps({"rivals": [{"name": "torch eager", "library": "none", "version": "0"}]}), flush=True)
END
for signal in INT TERM; do
  rm -f "$work/waiting_rivals.preparing"
  mkdir "$work/$signal"
  TMPDIR="$work/$signal" python3 - "$work" $signal "${training[@]:0:${#training[@]}-1}" "$work/waiting_rivals.py" <<'END'
import pathlib, signal, subprocess, sys, time
work, number = pathlib.Path(sys.argv[1]), getattr(signal, "SIG" + sys.argv[2])
training = subprocess.Popen(sys.argv[3:], stdout=subprocess.DEVNULL)
while not (work / "waiting_rivals.preparing").exists():
    assert training.poll() is None, training.returncode
    time.sleep(0.01)
(made,) = (work / sys.argv[2]).iterdir()
assert (made / "model.safetensors").exists()
training.send_signal(number)
assert training.wait() == -number, training.returncode
assert not list((work / sys.argv[2]).iterdir()), made
END
done
"$fovea" bench train --models rnn --threads 1 --vocabulary 50 --mini-batch-words 280 --rounds 1 --updates 1 --rivals none > "$work/beside"
if grep -q torch "$work/beside"; then echo "bench train: --rivals none has rivals"; exit 1; fi

# Translation: the rival reads the weights, the batches and Fovea's own translations. An RNN is refused by the real script, or absent.
cat > "$work/translate_rivals.py" <<'END'
import json, pathlib, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    if request["do"] == "list":
        answer = {"rivals": [{"name": "ctranslate2 f32", "library": "none", "version": "0"}]}
    elif request["do"] == "prepare":
        assert (pathlib.Path(request["model"]) / "model.safetensors").exists() and request["vocabulary"] == 50
        batches, written = request["batches"], request["written"]
        assert sum(len(batch) for batch in batches) == 12
        # Sorted by length, and all translations of a batch as long as the longest sentence.
        assert all([len(ids) for ids in batch] == sorted(len(ids) for ids in batch) for batch in batches)
        assert all(len(ids) == len(batch[-1]) for batch, texts in zip(batches, written) for ids in texts)
        answer = {"prepared": [{"name": "ctranslate2 f32", "note": "12 of 12"}]}
    elif request["do"] == "run":
        answer = {"seconds": [1e-3 * request["threads"] * request["width"]] * request["count"]}
    print(json.dumps(answer), flush=True)
END
translating=("$fovea" bench translate --threads 1,2 --vocabulary 50 --sentences 12 --beam-size 3 --rounds 1 --rivals python3 --rivals-script)
"${translating[@]}" "$work/translate_rivals.py" --models transformer > "$work/beside"
grep -q 'ctranslate2 f32 *3.00 ms.*12 of 12' "$work/beside" && grep -q 'ctranslate2 f32 *6.00 ms' "$work/beside" || { cat "$work/beside"; exit 1; }
"${translating[@]}" "$(dirname "$0")/../../bench/translate_rivals.py" --models rnn > "$work/beside" 2> "$work/error"
[[ $(grep -c 'ctranslate2 f32' "$work/beside") == 1 ]] || { cat "$work/beside" "$work/error"; exit 1; }
# Generation: the rivals get the folder, the prompts of the widest row, and the texts of Fovea, which are those of fovea generate.
cat > "$work/generate_rivals.py" <<'END'
import json, os, pathlib, subprocess, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    if request["do"] == "list":
        answer = {"rivals": [{"name": "transformers f32", "library": "none", "version": "0"}, {"name": "ctranslate2 f32", "absent": "no such module"}]}
    elif request["do"] == "prepare":
        prompts, written = request["prompts"], request["written"]
        assert len(prompts) == len(written) == 3 and all(len(ids) == 5 for ids in prompts) and all(len(ids) == 9 for ids in written)
        for prompt, ids in zip(prompts, written):
            command = [os.environ["FOVEA"], "generate", "--model", request["model"], "--prompt-ids", " ".join(map(str, prompt))]
            found = subprocess.run([*command, "--max-new-tokens", "9", "--greedy", "--json"], capture_output=True, text=True)
            assert json.loads(found.stdout)["ids"] == ids, found
        answer = {"prepared": [{"name": "transformers f32", "note": "3 of 3"}]}
    elif request["do"] == "run":
        answer = {"seconds": [1e-3 * request["threads"] * request["width"]] * request["count"]}
    print(json.dumps(answer), flush=True)
END
FOVEA=$fovea "$fovea" bench generate --threads 1,2 --texts 1,3 --prompt 5 --tokens 9 --rounds 1 --rivals python3 \
  --rivals-script "$work/generate_rivals.py" > "$work/beside"
for time in 1.00 2.00 3.00 6.00; do
  grep -q "transformers f32 *$time ms.*3 of 3" "$work/beside" || { cat "$work/beside"; exit 1; }
done
[[ $(grep -c 'ctranslate2 f32 *no such module' "$work/beside") == 1 ]] || { cat "$work/beside"; exit 1; }
"$fovea" bench train --models language --threads 1 --mini-batch-words 300 --rounds 1 --updates 1 --rivals python3 \
  --rivals-script "$(dirname "$0")/../../bench/train_rivals.py" > "$work/beside" 2> "$work/error"
[[ $(grep -c 'torch eager' "$work/beside") == 1 ]] || { cat "$work/beside" "$work/error"; exit 1; }
if "$fovea" bench train --models parrot 2> "$work/error"; then echo "bench train: accepted an unknown model"; exit 1; fi
grep -q parrot "$work/error"

# A folder of weights: a row for each type and number of threads, which write the same ids.
mkdir "$work/gpt2"
cat > "$work/gpt2/config.json" <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1000, "n_embd": 64, "n_inner": 256, "n_layer": 4, "n_head": 2, "n_positions": 60}
END
"$(dirname "$fovea")/tests/family_model" "$work/gpt2"
"$fovea" bench model --model "$work/gpt2" --weights f32 bf16 --batch 2 --length 8 --prompt 4 --tokens 40 --rounds 1 --json > "$work/model"
"$fovea" generate --model "$work/gpt2" --prompt-ids '902 55 204 353' --max-new-tokens 41 --greedy --json > "$work/written"
python3 - "$work" <<'END'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in (work / "model").read_text().splitlines()]
assert [(row["weights"], row["threads"]) for row in rows] == [("f32", 1), ("f32", 2), ("bf16", 1), ("bf16", 2)], rows
for row in rows:
    assert row["reading_seconds"] > 0 and row["writing_seconds"] >= 0 and row["writing_bytes"] > 0, row
    assert row["reading_share"] > 0 and row["read_rate"] > 0, row
assert all(row["ids"] == rows[0]["ids"] for row in rows[:2]), rows
assert rows[0]["ids"] == json.loads((work / "written").read_text())["ids"], rows
END
if "$fovea" bench model --model "$work/nowhere" > /dev/null 2> "$work/error"; then echo "bench model: read a folder that is not there"; exit 1; fi
grep -q nowhere "$work/error"
