#!/usr/bin/env bash
# --profile: the parts add up to the time of all threads, every event has its share of the limit, and a command that is refused
# leaves all files as they are.
source "$(dirname "$0")/script.bash"

for n in $(seq 80); do echo "the cat $((n % 7)) sees the dog $((n % 5)) and the bird $((n % 3))"; done > source
sed 's/the/le/g; s/cat/chat/; s/sees/voit/; s/dog/chien/; s/and/et/; s/bird/oiseau/' source > target
sed -n '1,24s/.*/{"prompt": "&", "length": 12, "temperature": 1}/p' source > prompts
small=(--max-updates 3 --valid-freq 3 --dim 16 --dim-ffn 32 --layers 1 --heads 2 --vocab-size 100)

translator() {
  "$fovea" train --model transformer --train-source source --train-target target --valid-source source --valid-target target \
    "${small[@]}" "$@"
}
writer() {
  "$fovea" train --model language --train-text source --valid-text target --window 16 "${small[@]}" "$@"
}
translator --output translator > log 2>&1 || fail "$(cat log)"
writer --output writer > log 2>&1 || fail "$(cat log)"

# checked NAMES: the summary in `summary` and the trace in `trace`, which has an event of each name.
checked() {
  python3 - "$@" <<'END'
import json, re, sys
threads, *names = sys.argv[1:]
summary, trace = open("summary").read(), json.load(open("trace"))
head = re.search(r"profile: ([0-9.]+) s on (\d+) threads?, ([0-9.]+) s in all", summary)
assert head and head[2] == threads, summary
wall, whole = float(head[1]), float(head[3])
assert abs(whole - int(threads) * wall) < 0.01 * whole + 0.01, summary
parts = {name: (float(seconds), float(share)) for name, seconds, share in re.findall(r"^  ([a-z-]+) +([0-9.]+) s +([0-9.]+) %$", summary, re.M)}
assert {"waiting", "other", "products", "data"} <= parts.keys(), summary
assert abs(sum(seconds for seconds, _ in parts.values()) - whole) < 0.05 * whole + 0.0005 * len(parts), summary
assert abs(sum(share for _, share in parts.values()) - 100) < 5, summary
events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
assert trace["otherData"]["events that were not kept"] == 0, trace["otherData"]
missing = [event for event in events if "share of the limit" not in event["args"]]
assert not missing, missing[:3]
wanted = set(names) - {event["name"] for event in events}
assert not wanted, wanted
assert all(1 <= event["args"]["threads"] <= int(threads) for event in events)
tracks = {event["tid"] for event in events}
assert len(tracks) <= int(threads), tracks
END
}
for threads in 1 2 5; do
  translator --output "again$threads" --cpu-threads "$threads" --profile trace > /dev/null 2> summary || fail "$(cat summary)"
  checked "$threads" 'text to tokens' 'batch of sentences' 'linear cross entropy' adam 'linear, backward' 'attention, backward'
  cmp translator/model.safetensors "again$threads/model.safetensors" || fail "a profile changed a training"
  for beam in 1 5; do
    translate=("$fovea" translate --model translator --input source --beam-size "$beam" --cpu-threads "$threads")
    "${translate[@]}" > plain
    "${translate[@]}" --profile trace > profiled 2> summary || fail "$(cat summary)"
    cmp plain profiled || fail "a profile changed a translation"
    checked "$threads" 'reading a model' 'text to tokens' 'tokens to text' hypotheses 'states of hypotheses' 'most probable' attention
  done
  for weights in f32 bf16 int8; do
    "$fovea" generate --model writer --input prompts --weights "$weights" --cpu-threads "$threads" --profile trace \
      > profiled 2> summary || fail "$(cat summary)"
    checked "$threads" 'reading a model' 'reading lines' 'choice of a token' log-softmax attention 'tokens to text'
  done
done

# What is refused leaves no file, and one that is there as it is.
refused '--n-best' "$fovea" translate --model translator --input source --beam-size 1 --n-best 3 --profile none
refused '' "$fovea" translate --model nowhere --input source --profile none
refused '' "$fovea" translate --model translator --nonsense --profile none
[[ ! -e none && ! -e none.partial ]] || fail "a refused command left a file"
echo kept > there
refused '--n-best' "$fovea" translate --model translator --input source --beam-size 1 --n-best 3 --profile there
[[ $(cat there) == kept ]] || fail "a refused command wrote the file of the profile"
cp source read
refused 'a file that no other option names' "$fovea" translate --model translator --input read --profile read
refused 'a file that no other option names' "$fovea" translate --model translator --input source --output read --profile ./read
cmp source read || fail "a profile took the place of a text"
# Lines that fail do not take the profile with them.
printf 'the cat\n\xff\n' > half
"$fovea" translate --model translator --input half --stats --profile half.json > /dev/null 2> log && fail "a bad line gave status 0"
grep -q '^2 lines in ' log && grep -q '^profile: ' log && [[ -s half.json ]] || fail "a failed line lost the profile: $(cat log)"
refused 'cannot be opened for writing' "$fovea" translate --model translator --input source --profile /no/such/folder/trace
refused 'cannot be opened for writing' "$fovea" translate --model translator --input source --profile .
