#!/usr/bin/env bash
# generate.sh FOVEA: tests `fovea generate`: a text that is saved and continued, many texts, and wrong input.
. "$(dirname "$0")/script.bash"
"$(dirname "$fovea")/tests/language_model" model
generate() { "$fovea" generate --model model --cpu-threads 1 "$@"; }

# A prompt of 150 words is read in three pieces, and the text runs on over the end of a page.
prompt=$(for _ in $(seq 25); do printf 'the cat sat on a mat '; done)
generate --prompt "$prompt" --length 60 --seed 3 >whole
[[ $(wc -w <whole) -ge 40 ]] || fail "wrote $(wc -w <whole) words"
generate --prompt "$prompt" --length 60 --seed 3 | cmp - whole || fail "another text of the same seed"
generate --prompt "$prompt" --length 60 --seed 4 | cmp -s - whole && fail "the seed changes nothing"

# In four processes, one of which only reads, the text is the same.
words() { tr -s ' \n' '\n\n' <"$1" | sed '/^$/d'; }
generate --prompt "$prompt" --length 0 --seed 3 --save-state state >parts
for length in 1 24 35; do generate --load-state state --save-state state --length "$length" --seed 3 >>parts; done
diff <(words parts) <(words whole) || fail "a text in parts is another text"
generate --load-state state --prompt 'the dog' --length 3 >/dev/null || fail "a prompt behind a state"

# Many texts at once are the texts alone, in the order of the lines.
cat >prompts.jsonl <<END
{"prompt": "$prompt", "length": 60, "seed": 3, "id": "long"}
{"prompt": "a dog", "length": 7}
{"prompt": "$prompt a dog", "length": 0}
{"prompt": "what", "length": 9, "temperature": 0}
END
generate --input prompts.jsonl --output answers.jsonl --stats 2>stats
python3 - whole answers.jsonl <<'END' || fail "answers: $(cat answers.jsonl)"
import json, sys
whole = open(sys.argv[1]).read().split()
answers = [json.loads(line) for line in open(sys.argv[2])]
assert [answer["id"] for answer in answers] == ["long", 2, 3, 4], answers
assert answers[0]["text"].split() == whole, answers[0]
assert [answer["tokens"] for answer in answers] == [60, 7, 0, 9]
assert all(answer["finish"] == "length" for answer in answers)
END
grep -q ' 0 of prompts shared' stats || fail "stats: $(cat stats)"
printf '{"prompt": "%s", "length": 5}\n{"prompt": "%s a dog", "length": 5}\n' "$prompt" "$prompt" |
  generate --input - --stats 2>stats >/dev/null
grep -q '128 of prompts shared' stats || fail "stats of a common prompt: $(cat stats)"
# A conversation: each line is answered before the next one comes, by one text and by beams. One signal ends the waiting, also
# for a named pipe that nobody has written to.
mkfifo fifo
for beams in 1 2; do
  coproc talk { exec "$fovea" generate --model model --cpu-threads 1 --greedy --length 4 --beam-size $beams --input - 2>errors; }
  pid=$talk_PID
  for words in 'the cat' 'a dog' what; do
    echo "{\"prompt\": \"$words\"}" >&"${talk[1]}"
    IFS= read -t 60 -r answer <&"${talk[0]}" || fail "no answer to '$words'"
    alone=$(generate --prompt "$words" --greedy --length 4 --beam-size $beams --json | sed 's/.*"text":\("[^"]*"\).*/\1/')
    [[ -n $alone && $answer == *"$alone"* ]] ||
      fail "'$words' gave '$answer'"
  done
  printf '{"prompt": "ha' >&"${talk[1]}"
  kill -INT "$pid"
  status=0
  wait "$pid" || status=$?
  [[ $status == 130 ]] || fail "ended by a signal with status $status"
  grep -qx 'stopped; the answers to the first 3 lines are written' errors || fail "$(cat errors)"
  (exec timeout 60 "$fovea" generate --model model --greedy --beam-size $beams --input fifo 2>errors) &
  pid=$!
  sleep 1
  kill -INT "$(pgrep -P $pid)"
  status=0
  wait "$pid" || status=$?
  [[ $status == 130 ]] || fail "a pipe without a writer: status $status, $(cat errors)"
done
# Lines that come while a text is written join it, and a long text holds back the others. What is finished stands at a signal.
{
  echo '{"prompt": "the", "length": 3}'
  for _ in $(seq 3000); do echo '{"prompt": "a dog", "length": 2}'; done
  echo '{"prompt": "the cat", "length": 380, "temperature": 0}'
  for _ in $(seq 3000); do echo '{"prompt": "what", "length": 2}'; done
} >long.jsonl
generate --input long.jsonl --limit-mb 1024 >whole_answers
[[ $(wc -l <whole_answers) == 6002 ]] || fail "$(wc -l <whole_answers) answers"
(sleep 0.5; head -n 2 long.jsonl; sleep 0.5; tail -n +3 long.jsonl) | generate --input - | cmp - whole_answers || fail "lines that come by and by"

generate --prompt 'what' --length 9 --temperature 0 >alone
[[ $(words alone) == $(python3 -c 'import json; print(*json.loads(open("answers.jsonl").readlines()[3])["text"].split(), sep="\n")') ]] ||
  fail "the most probable words alone and among others"

# Ids go in and out without a tokenizer, and end where the folder says.
rm -rf ids && cp -r model ids && rm ids/spm.model ids/vocab.json 2>/dev/null || true
by_ids() { "$fovea" generate --model ids --cpu-threads 1 --prompt-ids "$@"; }
by_ids '5 6 7' --max-new-tokens 6 --greedy --json >json
by_ids ' 5  6 7 ' --length 6 --temperature 0 >plain
python3 - json plain ids <<'END' || fail "ids: $(cat json plain)"
import json, math, sys
answer = json.load(open(sys.argv[1]))
assert answer["ids"] == list(map(int, open(sys.argv[2]).read().split())), answer
assert len(answer["ids"]) == len(answer["log_probabilities"]) == 6
assert all(p <= 0 and math.isfinite(p) for p in answer["log_probabilities"])
json.dump({"eos_token_id": [answer["ids"][2], 10**12]}, open(sys.argv[3] + "/generation_config.json", "w"))
END
[[ $(by_ids '5 6 7' --max-new-tokens 6 --greedy | wc -w) -le 3 ]] || fail "goes on behind the end"
for wrong in '' 'a' '5 -6' '5.0' '99999999999' '4000'; do
  by_ids "$wrong" --length 2 >out 2>errors && [[ -n $wrong ]] && fail "took the ids '$wrong'"
done
refused 'nothing beside --prompt-ids' generate --prompt-ids '5' --prompt 'a' --length 3
refused 'nothing beside --input' generate --input prompts.jsonl --json
# A text that does not fit is refused before it begins.
cp -r model long
sed -i 's/: 400\b/: 1000000/' long/config.json
"$fovea" generate --model long --cpu-threads 1 --prompt a --length 100000 --limit-mb 1 >out 2>errors && fail "took 100,000 tokens"
grep -q -- "'--limit-mb': expected at least [0-9]* for 10000[0-9] tokens" errors || fail "expected a limit of bytes, got '$(cat errors)'"
[[ ! -s out ]] || fail "wrote before it refused"
for option in '--system s' --stats --show-prompt '--template t' '--tools t' "--template-variables {}" '--messages m' --chat; do
  # shellcheck disable=SC2086
  refused "${option%% *}" generate --prompt-ids '5 6 7' $option
done

# A text may have one token more than the model reads, by beams too. A longer one is refused before any of it
# is written, unless its length is the default.
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 16/' ids/config.json >short.json
grep -q '"max_position_embeddings": 16' short.json || fail "config.json names no positions: $(cat ids/config.json)"
cp -r ids short && mv short.json short/config.json && rm -f short/generation_config.json
short() { "$fovea" generate --model short --cpu-threads 1 --prompt-ids '5 6 7 8' --temperature 0 "$@"; }
for beams in 1 2; do
  [[ $(short --length 13 --beam-size $beams | wc -w) == 13 ]] || fail "13 tokens with $beams beams"
  [[ $(short --beam-size $beams | wc -w) == 13 ]] || fail "as many as fit, with $beams beams"
  if short --length 14 --beam-size $beams >out 2>errors; then fail "14 tokens with $beams beams"; fi
  grep -q -- "--length.*at most 13" errors && [[ ! -s out ]] || fail "$(cat out errors)"
done
refused '--stats' generate --prompt a --beam-size 2 --stats

# Text ends before a stop string, wherever tokens end, and nothing of it is printed.
generate --prompt 'the cat' --length 30 --seed 5 >whole
python3 - "$fovea" whole <<'END' || fail "stop strings"
import json, subprocess, sys
whole = open(sys.argv[2]).read()[:-1]
def run(*options):
    return subprocess.run([sys.argv[1], "generate", "--model", "model", "--cpu-threads", "1", *options], capture_output=True, text=True, check=True).stdout
for begin in range(0, len(whole) - 3, 7):
    for size in (1, 2, 5, 9):
        stop = whole[begin:begin + size]
        expected = whole[:whole.find(stop)]
        options = ("--prompt", "the cat", "--length", "30", "--seed", "5", "--stop", "never so", "--stop", stop)
        assert run(*options) == expected + "\n", (stop, expected, run(*options))
middle = len(whole) // 2  # so that it ends before the last token
stop = whole[middle:middle + 2]
expected = whole[:whole.find(stop)]
answer = json.loads(run(*options[:-1], stop, "--json"))
assert answer["text"] == expected and answer["finish"] == "stop" and answer["tokens"] == len(answer["ids"]) < 30, answer
with open("stops.jsonl", "w") as file:
    print(json.dumps({"prompt": "the cat", "length": 30, "seed": 5, "stop": [stop], "min_p": 0.0, "repetition_penalty": 1.0}), file=file)
    print(json.dumps({"prompt": "the cat", "length": 30, "seed": 5}), file=file)
answers = [json.loads(line) for line in run("--input", "stops.jsonl").splitlines()]
assert [one["text"] for one in answers] == [expected, whole] and [one["finish"] for one in answers] == ["stop", "length"], answers
END
refused 'at least one byte' generate --prompt a --stop ''
refused 'nothing beside --save-state' generate --prompt a --stop b --save-state stopped
echo '{"prompt": "a", "stop": [""]}' >wrong.jsonl
refused '"stop": expected a text' generate --input wrong.jsonl
echo '{"prompt": "a", "messages": []}' >wrong.jsonl
refused 'got both' generate --input wrong.jsonl
echo '{"messages": [{"role": "user", "content": "a"}]}' >wrong.jsonl
refused 'has no chat template' generate --input wrong.jsonl
refused 'has no chat template' generate --chat a
refused '--chat or --messages beside it' generate --system b --prompt a

# A conversation under the folder's template: its text and ids, with the messages spelt in every way.
cp -r model chat
cat >chat/chat_template.jinja <<'END'
{%- for m in messages %}{{ '[' + m.role + '] ' + m.content + '\n' }}{% endfor %}
{%- if tools %}{{ tools | length }} tools {{ tools[0].name }}
{% endif %}
{%- if mood is defined %}{{ mood }}
{% endif %}
{%- if add_generation_prompt %}[assistant] {% endif %}
END
chat() { "$fovea" generate --model chat --cpu-threads 1 "$@"; }
# not_chat WORDS ARGUMENTS...: the command fails, says WORDS, and prints no name of a parser or of the library.
not_chat() {
  local words=$1
  shift
  if chat "$@" >out 2>errors; then fail "took $*"; fi
  grep -qF -- "$words" errors || fail "expected '$words', got '$(cat errors)'"
  ! grep -qE 'json\.exception|ChatTemplates|chat\.(tools|variables|messages)' errors || fail "$(cat errors)"
}
expect() { [[ $1 == "$2" ]] || fail "expected '$2', got '$1'"; }
expect "$(chat --chat 'a cat' --system 'be brief' --show-prompt)" $'[system] be brief\n[user] a cat\n[assistant] '
said='[{"role": "system", "content": "s"}, {"role": "user", "content": "the cat"}]'
expected=$'[system] s\n[user] the cat\n[assistant] '
expect "$(chat --messages - --show-prompt <<<"$said")" "$expected"
expect "$(chat --messages - --show-prompt <<<"{\"messages\": $said}")" "$expected"
expect "$(chat --messages - --show-prompt <<<'{"role": "system", "content": "s"}
{"role": "user", "content": "the cat"}')" "$expected"
expect "$(printf '\xEF\xBB\xBF{"role": "system", "content": "s"}\n{"role": "user", "content": "the cat"}\n' | chat --messages - --show-prompt)" "$expected"
not_chat 'standard input (line 1' --input - <<<'{'
not_chat 'standard input (line 1): "messages": expected' --input - <<<'{"messages": []}'
not_chat "'message 1': expected a text or an array as \"content\", got none" --messages - <<<'[{"role": "user"}]'
not_chat "'message 2': expected an object" --messages - <<<'[{"role": "user", "content": "a"}, 5]'
not_chat '"tools": expected' --input - <<<'{"messages": [{"role": "user", "content": "a"}], "tools": 5}'
expect "$(chat --messages - --show-prompt <<<'{
  "role": "user",
  "content": "a"
}')" $'[user] a\n[assistant] '
echo '[{"name": "one"}, {"name": "two"}]' >tools.json
expect "$(chat --chat a --tools tools.json --template-variables '{"mood": "glad"}' --show-prompt)" \
  $'[user] a\n2 tools one\nglad\n[assistant] '
chat --messages - --show-prompt --json <<<"$said" | python3 -c '
import json, sys
shown = json.load(sys.stdin)
assert shown["prompt"].startswith("[system] s") and len(shown["ids"]) > 5, shown' || fail "--show-prompt --json"
chat --chat 'the cat' --system 'a mat' --length 4 --greedy >said
chat --input - --length 4 --greedy >many <<<'{"messages": [{"role": "system", "content": "a mat"}, {"role": "user", "content": "the cat"}]}'
python3 - said many <<'END' || fail "conversations: $(cat said many)"
import json, sys
assert json.loads(open(sys.argv[2]).read())["text"].split() == open(sys.argv[1]).read().split()
END
python3 -c 'print("{\"messages\": " + "[" * 200000 + "]" * 200000 + "}")' >deep.json
not_chat 'nest too deep' --messages deep.json --show-prompt
python3 -c 'print("[" * 200000 + "]" * 200000)' >deep.json
not_chat 'nest too deep' --messages deep.json --show-prompt
not_chat 'nest too deep' --chat a --tools deep.json --show-prompt
not_chat "two values of 'role'" --messages - --show-prompt <<<'[{"role": "user", "role": "system", "content": "a"}]'
not_chat "standard input (line 2, column" --messages - --show-prompt <<<'{"role": "user", "content": "a"}
{"role": "user", }'
not_chat "syntax error" --messages - --show-prompt <<<'not json'
not_chat '"messages": expected an array' --messages - --show-prompt <<<'{"messages": 1}'
not_chat '--template-variables (line 1' --chat a --template-variables '{x}' --show-prompt
not_chat "'--template-variables': expected a JSON object" --chat a --template-variables '[1]' --show-prompt
not_chat "'--template-variables': expected variables of other names" --chat a --template-variables '{"tools": 1}' --show-prompt
echo '{}' >object.json
not_chat "'--tools': expected an array" --chat a --tools object.json --show-prompt
not_chat "'--template': expected default, got x" --chat a --template x --show-prompt
not_chat 'no --save-state and no --load-state' --chat a --save-state state
echo 'not json' >wrong.jsonl
refused "wrong.jsonl (line 1, column 1): syntax error" generate --input wrong.jsonl
[[ $(grep -o 'wrong.jsonl' errors | wc -l) == 1 ]] || fail "names the file twice: $(cat errors)"
! grep -q 'got null' errors || fail "$(cat errors)"
echo '[1]' >wrong.jsonl
refused 'expected a JSON object, got [1]' generate --input wrong.jsonl
for length in 9223372036854775807 18446744073709551615; do
  echo "{\"prompt\": \"a\", \"length\": $length}" >wrong.jsonl
  refused "$length" generate --input wrong.jsonl
done

# Beams find a text that is at least as probable as the greedy one of the same length.
generate --prompt 'the cat' --length 8 --greedy --json >greedy
generate --prompt 'the cat' --length 8 --greedy --beam-size 8 --json >beams
generate --prompt 'the cat' --length 8 --greedy --beam-size 8 >text
python3 - greedy beams text <<'END' || fail "beams: $(cat greedy beams text)"
import json, sys
greedy, beams = (json.load(open(name)) for name in sys.argv[1:3])
assert beams["tokens"] == greedy["tokens"] == 8 and beams["log_probability"] >= greedy["log_probability"] - 1e-6
assert open(sys.argv[3]).read() == beams["text"] + "\n"
END
generate --prompt 'the cat' --length 8 --beam-size 8 --length-penalty 0.8 --early-stopping on >beams || fail "beams imply --greedy"
# What draws makes beams draw: another seed gives another text, the same one the same. At temperature 0 nothing is drawn.
beams() { generate --prompt 'the cat' --length 8 --beam-size 3 --json "$@"; }
beams >plain
for draw in '--temperature 1' '--top-k 9' '--top-p 0.9' '--min-p 0.001' '--seed 1'; do
  # shellcheck disable=SC2086
  for seed in 1 2 3 4 5 6 7 8; do beams ${draw/--seed 1/} --seed $seed; done | sort -u | wc -l >count
  [[ $(cat count) -ge 3 ]] || fail "$(cat count) texts of eight seeds with $draw"
done
cmp <(beams --temperature 1 --seed 5) <(beams --temperature 1 --seed 5) || fail "two texts of one seed"
cmp plain <(beams --temperature 0) || fail "beams at temperature 0"
[[ $(beams --temperature 0.001 --seed 5 | python3 -c 'import json, sys; print(json.load(sys.stdin)["ids"])') == \
  "$(python3 -c 'import json; print(json.load(open("plain"))["ids"])')" ]] || fail "beams near temperature 0"
refused '--top-p' generate --prompt a --beam-size 2 --top-p 2
refused "'--length-penalty': expected a --beam-size above 1" generate --prompt a --length-penalty 0.8
refused "'--early-stopping': expected a --beam-size above 1" generate --prompt a --early-stopping on
refused 'one of off, on, never' generate --prompt a --beam-size 2 --early-stopping maybe
! grep -q '[^ -~]' errors || fail "bytes of no letters: $(cat errors)"
# The log-probability of a text of beams is that of the model, whatever the options.
generate --prompt 'the cat' --length 6 --beam-size 3 --repetition-penalty 1.5 --json >beams
python3 - beams model >scored.txt <<'END'
import json, sys
words = json.load(open(sys.argv[2] + "/vocab.json"))
print(words["</s>"], words["the"], words["cat"], *json.load(open(sys.argv[1]))["ids"])
END
"$fovea" score text --model model --ids-file scored.txt --json >scored
python3 - beams scored <<'END' || fail "log-probability of beams: $(cat beams scored)"
import json, sys
beams, scored = (json.load(open(name)) for name in sys.argv[1:])
assert abs(beams["log_probability"] - sum(scored["log_probabilities"][-len(beams["ids"]):])) < 1e-4
END

# Many texts by beams are those of each alone, in the order of the lines.
cat >many.jsonl <<'END'
{"prompt": "the cat", "length": 9, "id": "a"}
{"prompt": "the", "length": 4, "repetition_penalty": 1.3}
{"prompt": "the cat sat on the mat", "length": 7, "stop": ["the"]}
END
generate --input many.jsonl --beam-size 3 >many
for options in '--prompt=the*cat --length 9' '--prompt=the --length 4 --repetition-penalty 1.3' '--prompt=the*cat*sat*on*the*mat --length 7 --stop the'; do
  read -ra words <<<"$options"
  generate "${words[@]//\*/ }" --beam-size 3 --json
done >alone
python3 - many alone <<'END' || fail "many texts by beams: $(cat many alone)"
import json, sys
many, alone = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
assert [one["id"] for one in many] == ["a", 2, 3]
for one, other in zip(many, alone):
    assert all(one[key] == other[key] for key in ("text", "tokens", "finish", "log_probability")), (one, other)
END
echo '{"prompt": "a", "top_k": 3}' >wrong.jsonl
refused '"top_k": expected a "temperature" above 0 beside it, because the 2 beams are searched' generate --input wrong.jsonl --beam-size 2
# Lines may draw, each with a seed of its own.
for seed in 5 6; do echo "{\"prompt\": \"the cat\", \"length\": 8, \"temperature\": 1, \"seed\": $seed}"; done >drawn.jsonl
generate --input drawn.jsonl --beam-size 3 >many
for seed in 5 6; do beams --temperature 1 --seed $seed; done >alone
python3 - many alone <<'END' || fail "drawn lines: $(cat many alone)"
import json, sys
many, alone = ([json.loads(line)["text"] for line in open(name)] for name in sys.argv[1:])
assert many == alone, (many, alone)
END
echo '{"prompt": "a", "length": 0}' >wrong.jsonl
refused 'at least 1' generate --input wrong.jsonl --beam-size 2

# The folder says how many beams, and the command line may say another number.
cp -r model searching
echo '{"num_beams": 3, "length_penalty": 0.3, "early_stopping": true, "no_repeat_ngram_size": 1, "max_new_tokens": 5}' >searching/generation_config.json
search() { "$fovea" generate --model searching --prompt 'the cat' --cpu-threads 1 "$@" 2>errors; }
cmp <(search --json) <(search --beam-size 3 --length-penalty 0.3 --early-stopping on --json) || fail "num_beams of the folder"
search --json >beams
python3 -c 'import json; ids = json.load(open("beams"))["ids"]; assert len(ids) == len(set(ids)) == 5, ids' || fail "an id stands twice: $(cat beams)"
search --temperature 1 --seed 3 --json >drawn || fail "a draw from a folder with num_beams: $(cat errors)"
[[ ! -s errors ]] || fail "$(cat errors)"
cmp <(search --temperature 1 --seed 3 --beam-size 3 --length-penalty 0.3 --early-stopping on --json) drawn || fail "num_beams beside a draw"
echo '{"num_beams": 3, "do_sample": true, "temperature": 0.9, "top_k": 40, "max_new_tokens": 5}' >searching/generation_config.json
cmp <(search --seed 4 --json) <(search --seed 4 --beam-size 3 --temperature 0.9 --top-k 40 --json) || fail "do_sample beside num_beams"
[[ $(for seed in 1 2 3 4 5; do search --seed $seed; done | sort -u | wc -l) -ge 2 ]] || fail "do_sample draws nothing"
cmp <(search --greedy --json) <(search --beam-size 3 --temperature 0 --seed 2 --json) || fail "--greedy beside do_sample"
echo '{"num_beams": 3, "no_repeat_ngram_size": "x"}' >searching/generation_config.json
if search; then fail "took a no_repeat_ngram_size of a text"; fi
grep -q 'no_repeat_ngram_size: expected a whole number' errors || fail "$(cat errors)"
echo '{"early_stopping": 3}' >searching/generation_config.json
if search; then fail "took an early_stopping of 3"; fi
grep -q 'early_stopping: expected true, false or "never", got 3' errors || fail "$(cat errors)"

# max_length of the folder counts the prompt too, and gives way to max_new_tokens and to --length.
cp -r ids limited
limited() { "$fovea" generate --model limited --cpu-threads 1 --prompt-ids "$@" 2>errors | wc -w; }
echo '{"max_length": 9}' >limited/generation_config.json
for beams in 1 2; do
  [[ $(limited '5 6 7' --beam-size $beams) == 6 ]] || fail "max_length of the folder with $beams beams: $(cat errors)"
  [[ $(limited '5 6 7' --beam-size $beams --length 8) == 8 ]] || fail "--length beside max_length with $beams beams: $(cat errors)"
done
if limited '1 2 3 4 5 6 7 8 9' >count; then fail "a prompt of max_length"; fi
grep -q "fewer than 9 tokens, the folder's max_length, or a length of its own" errors || fail "$(cat errors)"
printf '%s\n' '{"prompt": "a"}' '{"prompt": "a", "length": 12}' >two.jsonl
cp model/vocab.json limited
"$fovea" generate --model limited --input two.jsonl --cpu-threads 1 >answers 2>errors || fail "$(cat errors)"
python3 -c '
import json
tokens = [json.loads(line)["tokens"] for line in open("answers")]
assert tokens[0] < 9 and tokens[1] == 12, tokens' || fail "max_length of lines: $(cat answers)"
# Old folders have all of it in config.json.
rm limited/generation_config.json
cp limited/config.json config.json
for say in '"max_length": 9' '"max_length": 9, "max_new_tokens": 4'; do
  sed "0,/{/s//{$say,/" config.json >limited/config.json
  limited '5 6 7'
done >counts
[[ $(tr '\n' ' ' <counts) == '6 4 ' ]] || fail "lengths of config.json: $(cat counts errors)"
cp config.json limited
echo '{"max_length": 9, "max_new_tokens": 4}' >limited/generation_config.json
[[ $(limited '5 6 7') == 4 ]] || fail "max_new_tokens counts before max_length"

# What the model computes for ids, and what its folder is.
printf '5 6 7\n8\n' >ids.txt
"$fovea" embed --model ids --ids-file ids.txt --hidden --output hidden.npy
"$fovea" embed --model ids --ids-file ids.txt --logits --output logits.npy
"$fovea" show ids >shown
grep -q '^runs  *yes' shown || fail "$(cat shown)"
grep -q '^kernel  *attention, one token: .*split' shown || fail "$(cat shown)"
"$fovea" show ids --json | python3 -c '
import json, sys
shown = json.load(sys.stdin)
assert shown["runs"] and shown["model_type"] == "starcoder2" and not shown["problems"], shown
assert shown["bytes"] == 4 * shown["parameters"]
assert shown["specification"]["attention"]["causal"]' || fail "show --json"
sed 's/"starcoder2"/"starcoder3"/' model/config.json >ids/config.json
"$fovea" show ids | grep -q '^runs  *no: .*starcoder3' || fail "show of an unknown family"
sed 's/{/{"odd_key": 4,/' model/config.json >ids/config.json
"$fovea" show ids | grep -q '^problem  *odd_key' || fail "show of an unknown key"
for wrong in '5 6 x' ''; do
  printf '5\n%s\n' "$wrong" >wrong.txt
  "$fovea" embed --model model --ids-file wrong.txt --hidden --output out.npy 2>errors && fail "took the line '$wrong'"
  grep -q 'wrong.txt.*line 2' errors || fail "$(cat errors)"
done
"$fovea" embed --model model --ids-file ids.txt --hidden --logits --output out.npy 2>errors && fail "took both"
"$fovea" embed --model ids --ids-file - --hidden --output hidden.json <ids.txt || fail "ids of standard input"
python3 - hidden.json hidden.npy <<'END' || fail "embed to JSON: $(head -c 300 hidden.json)"
import json, struct, sys
rows, raw = json.load(open(sys.argv[1])), open(sys.argv[2], "rb").read()
width, begin = len(rows[0][0]), 10 + struct.unpack("<H", raw[8:10])[0]
numbers = struct.unpack(f"<{(len(raw) - begin) // 4}f", raw[begin:])
longest = max(map(len, rows))
for line, of in enumerate(rows):
    for row, values in enumerate(of):
        assert values == [float(x) for x in numbers[(line * longest + row) * width:][:width]], (line, row)
END
printf '5\n%s\n' "$(seq -s ' ' 1 500)" | tr -s ' ' | sed 's/[0-9]\{2,\}/7/g' >long.txt
if "$fovea" embed --model ids --ids-file long.txt --hidden --output out.npy 2>errors; then fail "took 500 ids"; fi
grep -q 'long.txt (line 2): has 500 ids, and the model reads at most 400; --truncate cuts it' errors || fail "$(cat errors)"
"$fovea" embed --model ids --ids-file long.txt --hidden --truncate --output out.npy || fail "--truncate"
echo '5 100000' >wrong.txt
if "$fovea" embed --model ids --ids-file wrong.txt --hidden --output out.npy 2>errors; then fail "took an id of no row"; fi
grep -q 'wrong.txt (line 1): has the id 100000' errors || fail "$(cat errors)"
# A weight that is NaN is told of, and so is what generation_config.json says and nobody applies.
cp -r ids nan
cat >nan.py <<'END'
import json, struct, sys
raw = bytearray(open(sys.argv[1], "rb").read())
length = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8 : 8 + length])
name = next(n for n in sorted(header) if "norm" in n and n.endswith("weight"))
begin = 8 + length + header[name]["data_offsets"][0]
raw[begin : begin + 4] = struct.pack("<f", float("nan"))
open(sys.argv[1], "wb").write(raw)
END
python3 nan.py nan/model.safetensors
if "$fovea" embed --model nan --ids-file ids.txt --hidden --output out.npy 2>errors; then fail "wrote NaN"; fi
grep -q 'is no number (NaN)' errors || fail "$(cat errors)"
if "$fovea" score text --model nan --ids-file ids.txt 2>errors; then fail "scored NaN"; fi
grep -q 'for text 1 is no number (NaN)' errors || fail "$(cat errors)"
for search in "" --greedy "--beam-size 2"; do
  if "$fovea" generate --model nan --prompt-ids '3 4' --max-new-tokens 2 $search >out 2>errors; then fail "wrote from NaN"; fi
  grep -q 'nan: the probabilities of its model: expected .*, got n' errors || fail "$search: $(cat errors)"
done
cp -r model nan-words
python3 nan.py nan-words/model.safetensors
for search in --greedy "--beam-size 2"; do
  if echo '{"prompt": "a"}' | "$fovea" generate --model nan-words --input - --max-new-tokens 2 $search >out 2>errors; then
    fail "wrote lines from NaN"
  fi
  grep -q 'nan-words: the probabilities of its model: expected .*, got n' out || fail "$search: $(cat out errors)"
done
echo '{"renormalize_logits": true, "chat_format": "x", "use_cache": true}' >ids/generation_config.json
"$fovea" generate --model ids --prompt-ids '5 6' --length 2 --greedy >/dev/null 2>errors
grep -q 'renormalize_logits = true of generation_config.json is not applied' errors && grep -q 'chat_format' errors || fail "$(cat errors)"
! grep -q 'use_cache' errors || fail "$(cat errors)"
rm ids/generation_config.json
sed 's/{/{"use_mrope": false, "quantization_config": null, "unsloth_fixed": true,/' model/config.json >ids/config.json
"$fovea" show ids | grep -q '^runs  *yes' || fail "$("$fovea" show ids)"
sed 's/{/{"use_mrope": true,/' model/config.json >ids/config.json
"$fovea" show ids | grep -q '^problem  *use_mrope' || fail "$("$fovea" show ids)"
cp model/config.json ids

# Wrong input is named, and leaves a state as it was.
refused '--prompt' generate --length 3
refused "the prompt': expected at most 400 tokens" generate --prompt "$prompt $prompt $prompt" --length 3
refused 'too few for the header' generate --prompt a --load-state prompts.jsonl
cp state before
head -c 5000 before >state
refused state generate --load-state state --length 3 --save-state state
cmp -n 5000 state before || fail "a refused state was written"
mkdir other && "$(dirname "$fovea")/tests/language_model" other
cp before state
printf 'x' | dd of=other/model.safetensors bs=1 seek=$(($(stat -c %s other/model.safetensors) - 1)) conv=notrunc 2>/dev/null
if "$fovea" generate --model other --load-state state --length 1 2>errors; then fail "took the state of another model"; fi
grep -q 'another model' errors || fail "$(cat errors)"
echo '{"prompt": "a", "lenght": 3}' >wrong.jsonl
refused '"lenght"' generate --input wrong.jsonl
echo '{"prompt": 3}' >wrong.jsonl
refused 'expected a text' generate --input wrong.jsonl
echo '["a"]' >wrong.jsonl
refused 'wrong.jsonl (line 1)' generate --input wrong.jsonl
echo '{"prompt": "a", "length": 1000}' >wrong.jsonl
refused 'line 1' generate --input wrong.jsonl
# A wrong line is answered by its error, and the others go on to what they are without it.
goes_on() { # NUMBER WORDS: of the answers in the file out, that one is an error with these words, and the others are texts.
  python3 - out "$@" <<'END'
import json, sys
answers, wrong, words = [json.loads(line) for line in open(sys.argv[1])], int(sys.argv[2]), sys.argv[3]
assert len(answers) > 1, answers
for number, answer in enumerate(answers, 1):
    assert answer["id"] == ("mine" if number == wrong and "mine" in str(answer["id"]) else number), answer
    failed = answer["finish"] == "failed"
    assert failed == (number == wrong) == ("error" in answer), answer
    assert words in answer["error"] if failed else answer["tokens"] > 0, answer
END
}
printf '%s\n' '{"prompt": "the"}' '{"prompt": "a cat", "repetition_penalty": 1.1}' >good.jsonl
for beams in 1 2; do
  generate --input good.jsonl --length 6 --greedy --beam-size $beams >good
  for wrong in '{"prompt": "a", "id": "mine", "lenght": 3}' '{"prompt": "a", "length": 1000, "id": "mine"}' '{"pro' $'{"prompt": "a\xff"}' \
    '{"prompt": "a", "top_p": 0}' '{"prompt": "a", "top_p": 1.5}' '{"prompt": "a", "min_p": 2}' '{"prompt": "a", "top_k": -1}' \
    '{"prompt": "a", "temperature": -1}' '{"prompt": "a", "repetition_penalty": 0}' '{"prompt": "a", "length": -1}'; do
    echo '{"prompt": "the"}' >wrong.jsonl
    printf '%s\n' "$wrong" '{"prompt": "a cat", "repetition_penalty": 1.1, "id": 3}' >>wrong.jsonl
    if generate --input wrong.jsonl --length 6 --greedy --beam-size $beams >out 2>errors; then fail "took '$wrong'"; fi
    grep -q '^fovea: 1 of 3 lines failed.*wrong.jsonl (line 2' errors || fail "'$wrong': $(cat errors)"
    goes_on 2 'wrong.jsonl (line 2' || fail "'$wrong': $(cat out errors)"
    diff <(sed 's/"id":[0-9]*//' good) <(sed -n '1p;3p' out | sed 's/"id":[0-9]*//') || fail "'$wrong' changed the others"
  done
done
refused '--input' generate --input prompts.jsonl --prompt a
refused '--save-state' generate --input prompts.jsonl --save-state state
for path in nowhere/state model; do
  refused "'--save-state': expected a file in a folder that may be written to" generate --prompt a --length 3 --save-state $path
  [[ ! -s out ]] || fail "wrote a text before it refused $path"
done

# Blank lines are no lines, and a long prompt is one. Beams that do not fit alone fail alone.
printf '{"prompt": "the", "length": 3}\n\n  \n{"prompt": "a", "length": 3}\n\n' | generate --input - >out || fail "blank lines"
[[ $(grep -o '"id":[0-9]*' out | tr '\n' ' ') == '"id":1 "id":4 ' ]] || fail "blank lines: $(cat out)"
{
  printf '{"prompt": "'
  head -c 100000 /dev/zero | tr '\0' ' '
  printf 'the", "length": 3}\n'
} >long.jsonl
generate --input long.jsonl >out || fail "a line of 100,000 bytes"
printf '%s\n' '{"prompt": "a"}' "{\"prompt\": \"$prompt $prompt\", \"length\": 90}" '{"prompt": "the"}' >wrong.jsonl
if generate --input wrong.jsonl --length 4 --greedy --beam-size 40 --limit-mb 1 >out 2>errors; then fail "took beams that do not fit"; fi
goes_on 2 'of limit_bytes =' || fail "beams that do not fit: $(cat out errors)"

# Translators: many sources are those of each alone, drawn or not, by one beam or several.
mkdir bart
cat >bart/config.json <<'END'
{"model_type": "bart", "architectures": ["BartForConditionalGeneration"], "vocab_size": 12, "d_model": 16, "encoder_layers": 1,
 "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
 "max_position_embeddings": 16, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 1}
END
"$(dirname "$fovea")/tests/family_model" bart
cat >bart/tokenizer.json <<'END'
{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "WhitespaceSplit"},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
   "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
   "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
 "decoder": null,
 "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3,
   "a": 4, "b": 5, "c": 6, "d": 7, "e": 8, "f": 9, "g": 10, "h": 11}}}
END
# States of families whose names in the file are not ours, with rings of keys and with recurrences.
for family in mistral mamba2; do
  mkdir $family
  python3 -c 'import json; t = json.load(open("bart/tokenizer.json")); t["post_processor"] = None; print(json.dumps(t))' >$family/tokenizer.json
done
cat >mistral/config.json <<'END'
{"model_type": "mistral", "vocab_size": 12, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 400, "sliding_window": 70, "hidden_act": "silu", "rms_norm_eps": 1e-5}
END
cat >mamba2/config.json <<'END'
{"model_type": "mamba2", "vocab_size": 12, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 8, "num_heads": 4, "head_dim": 8,
 "n_groups": 2, "expand": 2, "hidden_act": "silu"}
END
for family in mistral mamba2; do
  "$(dirname "$fovea")/tests/family_model" $family
  for weights in f32 int8; do
    writes() { "$fovea" generate --model $family --weights $weights --cpu-threads 1 --seed 5 --temperature 1 "$@"; }
    writes --prompt 'a b c d e f g h' --length 90 >whole
    writes --prompt 'a b c d e f g h' --length 20 --save-state family.state >parts || fail "$family, $weights: no state"
    writes --load-state family.state --length 70 >>parts
    diff <(words parts) <(words whole) || fail "$family, $weights: a text in parts is another text"
  done
  sed -i 's/"hidden_act": "silu"/"hidden_act": "gelu"/' $family/config.json
  if writes --load-state family.state --length 3 2>errors; then fail "$family took a state of another config"; fi
  grep -q 'another model' errors || fail "$(cat errors)"
done

echo '{"eos_token_id": 1, "decoder_start_token_id": 1, "max_new_tokens": 9}' >bart/generation_config.json
bart() { "$fovea" generate --model bart "$@"; }
cat >sources.jsonl <<'END'
{"prompt": "a b c", "id": "first"}
{"prompt": "h", "length": 3}
{"prompt": "d e f g a b c d", "repetition_penalty": 1.4}
{"prompt": "c c", "temperature": 1.0, "seed": 4}
{"prompt": "e f", "stop": ["a", "b", "c"]}
END
for beams in 1 3; do
  bart --input sources.jsonl --greedy --beam-size $beams --cpu-threads 3 >many
  bart --input sources.jsonl --greedy --beam-size $beams --cpu-threads 1 >one_thread
  one() { bart --cpu-threads 1 --beam-size $beams --json "$@"; }
  {
    one 'a b c' --greedy
    one 'h' --greedy --length 3
    one 'd e f g a b c d' --greedy --repetition-penalty 1.4
    one 'c c' --temperature 1 --seed 4
    one 'e f' --greedy --stop a --stop b --stop c
  } >alone
  python3 - many alone one_thread <<'END' || fail "many translations, $beams beams: $(cat many alone one_thread)"
import json, sys
many, *others = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
assert [one["id"] for one in many] == ["first", 2, 3, 4, 5], many
for lines in others:
    assert len(lines) == 5, lines
    for one, other in zip(many, lines):
        assert all(one[key] == other[key] for key in ("text", "tokens", "finish")), (one, other)
        assert abs(one["log_probability"] - other["log_probability"]) < 1e-4, (one, other)
END
done
bart_refused() { # WORDS LINE: the line is answered by its error, and the other one goes on.
  echo '{"prompt": "a"}' >wrong.jsonl
  echo "$2" >>wrong.jsonl
  if bart --input wrong.jsonl >out 2>errors; then fail "took $2"; fi
  grep -qF -- "$1" errors && grep -qF 'wrong.jsonl (line 2)' errors || fail "expected '$1', got '$(cat out errors)'"
  goes_on 2 "$1" || fail "expected '$1', got '$(cat out errors)'"
}
bart_refused 'at most the 16 ids that the model reads' '{"prompt": "a b c d e f g h a b c d e f g h"}'
bart_refused 'at most 16, the positions of the model' '{"prompt": "a", "length": 17}'
bart_refused 'at least 1 of a search' '{"prompt": "a", "length": 0}'
bart_refused 'has no chat template' '{"messages": [{"role": "user", "content": "a"}]}'

# A line that fails is named, by every command, and the others go on. Here eleven ids may stand once each.
echo '{"eos_token_id": 1, "decoder_start_token_id": 1, "num_beams": 2, "no_repeat_ngram_size": 1, "suppress_tokens": [1]}' >bart/generation_config.json
printf 'a\na b c d e\nb c\n' >failing
if "$fovea" translate --model bart --input failing --max-length-factor 0.4 >out 2>errors; then fail "took a line that fails"; fi
grep -q '^fovea: failing (line 2): .*at step 12' errors && grep -q '1 of 3 lines failed' errors || fail "$(cat errors)"
[[ $(wc -l <out) == 3 && -z $(sed -n 2p out) && -n $(sed -n 1p out) && -n $(sed -n 3p out) ]] || fail "lines: $(cat out)"
refused "'--length-penalty': expected a --beam-size above 1" "$fovea" summarize --model bart --beam-size 1 --length-penalty 2 'the cat'
refused "'--normalize': expected a --beam-size above 1" "$fovea" translate --model bart --input failing --beam-size 1 --normalize 2
if "$fovea" summarize --model bart --input failing --max-new-tokens 12 --json >out 2>errors; then fail "took lines that fail"; fi
python3 -c 'import json; assert [("error" in json.loads(line)) for line in open("out")] == [True] * 3' || fail "$(cat out)"
printf '%s\n' '{"prompt": "a", "length": 5}' '{"prompt": "a", "length": 12}' >two.jsonl
if bart --input two.jsonl --greedy >out 2>errors; then fail "took a line that fails"; fi
python3 - out <<'END' || fail "$(cat out)"
import json, sys
one, two = (json.loads(line) for line in open(sys.argv[1]))
assert one["finish"] == "length" and one["tokens"] == 5 and two["finish"] == "failed" and "step 12" in two["error"], (one, two)
END

# do_sample of the folder draws translations too, and the command line may say otherwise.
echo '{"eos_token_id": 1, "decoder_start_token_id": 1, "num_beams": 2, "do_sample": true, "max_new_tokens": 9}' >bart/generation_config.json
printf 'a b\n' >line
texts() { "$fovea" translate --model bart --input line "$@" 2>errors; }
[[ $(for seed in 1 2 3 4 5 6; do texts --seed $seed; done | sort -u | wc -l) -ge 3 ]] || fail "do_sample of a translator draws nothing"
[[ ! -s errors ]] || fail "$(cat errors)"
for seed in 3 4; do
  [[ $(texts --seed $seed) == "$(bart 'a b' --seed $seed --cpu-threads 1)" ]] || fail "translate and generate draw differently"
done
[[ $(texts --temperature 0) == "$(bart 'a b' --greedy --cpu-threads 1)" ]] || fail "a search in place of a draw"
if texts --temperature 0 --seed 3; then fail "took a seed of nothing"; fi
grep -q -- "'--seed': expected a temperature above 0, or a folder with do_sample" errors || fail "$(cat errors)"
