#!/usr/bin/env bash
# errors.sh FOVEA: wrong options and folders are named as the caller wrote them, with what was expected and what came.
. "$(dirname "$0")/script.bash"
# says STATUS WORDS COMMAND...: the command ends with this status, and its error is WORDS.
says() {
  local status=$1 words=$2 got=0
  shift 2
  timeout 60 "$fovea" "$@" </dev/null >out 2>errors || got=$?
  [[ $got == "$status" ]] || fail "fovea $*: status $got: $(cat errors)"
  grep -qF -- "$words" errors || fail "fovea $*: expected '$words', got '$(cat errors)'"
}
small=(--model transformer --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 --dim-ffn 16 --layers 1
  --mini-batch-words 200 --cpu-threads 1)
"$fovea" train "${small[@]}" --max-updates 4 --output model 2>log || fail "$(cat log)"
"$(dirname "$fovea")/tests/language_model" language
printf 'the cat\n' >source

# Numbers.
says 2 "--max-updates: expected a number of at least 0, got '-1'" train --max-updates -1 --output new
says 2 "--lr: expected a number above 0, got '-1'" train --lr -1 --output new
says 2 "--seed: expected a whole number of at least 0, got '-1'" train --seed -1 --output new
says 2 "--seed: expected a whole number of 64 bits, got '99999999999999999999'" train --seed 99999999999999999999 --output new
says 2 "--seed: expected a whole number of at least 0, got '-5'" generate --model language --prompt a --seed -5
says 2 "--seed: expected a whole number of 64 bits, got '+99999999999999999999'" train --seed +99999999999999999999 --output new
says 2 "--seed: expected a whole number, got '0xFF'" train --seed 0xFF --output new
says 2 "--seed: expected a whole number without leading zeros, got '010'" train --seed 010 --output new
says 2 "--max-updates: expected a whole number, got '1.5'" train --max-updates 1.5 --output new
says 2 "--lr: expected a number, got 'fast'" train --lr fast --output new
says 2 "--learn-rate: expected a finite number, got 'nan'" train --learn-rate nan --output new
says 2 "--beam-size: expected 1 to 1000, got '0'" translate --model model --beam-size 0
says 2 "--beam-size: expected a whole number, got 'many'" translate --model model --beam-size many
says 2 "--beam-size: expected a whole number, got an empty text" translate --model model --beam-size ''
says 2 "--beam-size: expected a whole number of 32 bits, got '9999999999'" translate --model model --beam-size 9999999999
says 2 "--mini-batch: expected a whole number of at least 0, got '-3'" translate --model model --mini-batch -3
says 2 "--top-p: expected 1e-09 to 1, got '2'" generate --model language --prompt a --top-p 2
says 2 "--repetition-penalty: expected a number above 0, got '0'" generate --model language --prompt a --repetition-penalty 0
says 2 "--dropout: expected 0, or a rate above 1/512, because smaller ones drop nothing, got '0.001'" train --dropout 0.001 --output new
says 2 "--attention-dropout: expected 0, or a rate above 1/512" train --attention-dropout 0.001 --output new
says 2 "--dropout: expected 0, or a rate above 1/512" attend --dropout 0.001
says 1 "argument '--normalize': expected a --beam-size above 1 or --json" translate --model model --input source --beam-size 1 --normalize 0.6
says 2 "--weights: expected one of f32, int8, bf16, got 'f16'" translate --model model --weights f16
says 2 "--cell: expected one of rnn, gru, lstm, got 'GRU'" train --cell GRU --output new

# Empty names of files are no options that were left out.
for call in 'translate --model model --output' 'translate --model model --input' 'generate --model language --prompt a --output' \
  'generate --model language --input' 'inspect --model model --source a --html' 'tokenize --model language --write' \
  'train --output new --train-tsv' 'attend --out' 'embed --model language --output'; do
  says 2 "${call##* }: expected the name of a file, got an empty text" $call ''
  says 2 "${call##* }: expected the name of a file, got an empty text" ${call}=
done

# An option without its value, and one that came twice, wherever it stands.
for command in 'generate --model' 'embed --model' 'inspect --model' 'train --output new --seed' 'translate --model model --beam-size' \
  'bench train --rivals' 'bench generate --texts'; do
  read -ra words <<<"$command"
  says 2 "${words[-1]}: expected a value, got none" "${words[@]}"
done
says 2 "--model: expected once, got it 2 times" generate --model language --model model --prompt a
says 2 "--seed: expected once, got it 3 times" train --seed 1 --seed 2 --output new --seed 3
says 2 "--rivals: expected once, got it 2 times" bench translate --rivals none --rivals none
says 2 "--input: expected once, got it 2 times" classify --model model --input source --input source
if grep -qi 'required' errors; then fail "CLI11's words: $(cat errors)"; fi
# An empty value behind "=" is the value, not the option behind it; a flag has none.
says 2 "--max-new-tokens: expected a whole number, got an empty text" generate --model language --max-new-tokens= --prompt a
says 2 "--texts: expected a whole number, got an empty text" bench generate --texts= --prompt 5
says 2 "--greedy: expected no value, got one" generate --model language --greedy=3 --prompt a
says 2 "--greedy: expected no value, got one" generate --model language --greedy=false --prompt a

# Words that are not known. only STATUS LINE COMMAND...: this line is all that the command says.
only() {
  says "$@"
  [[ $(cat errors) == "$2" ]] || fail "fovea ${*:3}: expected '$2' alone, got '$(cat errors)'"
}
only 2 "--beams: there is no such option; did you mean --beam-size?" translate --beams 5
only 2 "--beam: there is no such option; did you mean --beam-size?" translate --model model --beam=5
only 2 "--min: there is no such option; did you mean --minutes?" demo --min 3
only 2 "--colour: there is no such option; \`fovea demo --help\` lists them" demo --colour red
only 2 "--modle: there is no such option; did you mean --model?
--inputt: there is no such option; did you mean --input?" translate --modle model --inputt source
only 2 "'b': expected an option; \`fovea show --help\` lists them" show model b
only 2 "'bogus' is no command; \`fovea --help\` lists them" bogus --model model
only 2 "'tranlate' is no command; did you mean translate?" tranlate --model model
only 2 "'trans' is no command; did you mean translate?" trans
only 2 "'' is no command; \`fovea --help\` lists them" ''
only 2 "'txt' is no command; did you mean text?" score txt
only 2 "'bleu': it belongs behind 'score'" bleu score
only 2 "--threads: there is no such option; did you mean --cpu-threads?" train --threads 3
only 2 "--temper: there is no such option; did you mean --temperature?" generate --model model --temper 0.5
only 2 "'--version': it belongs before 'translate'" translate --version
only 2 "'bogus' is no command; \`fovea bench --help\` lists them" bench bogus
only 2 "fovea: expected a command; \`fovea --help\` lists them"
only 2 "fovea score: expected bleu, alignment or text" score
only 2 "fovea corpus: expected generated, gettext or manuals" corpus
says 2 "fovea bench: expected attention, kernels, " bench
says 2 "--output is required" train
# The command is named once, and a variable of the environment as what it is.
only 1 "fovea show: argument 'folder': expected a folder, or --families, got none" show
only 1 "fovea: argument '--profile': expected a file that no other option names, got source, as --input" \
  translate --model model --input source --profile source
FOVEA_ISA=bogus says 1 'fovea: environment variable FOVEA_ISA: expected one of ' generate --model language --prompt 'the cat'
if grep -q make_plan errors; then fail "a function is named: $(cat errors)"; fi

# The help of all commands has a short line for each; what lines cannot be answered is said in each command's own.
"$fovea" --help >help
[[ $(grep -cE '^  [a-z]+ +[A-Z]' help) == 20 ]] || fail "not 20 commands: $(cat help)"
if grep -E '.{90}' help | grep -vE '^(fovea|Usage): '; then fail 'a long line in the help'; fi
grep -qx 'Run models:' help || fail "no groups: $(cat help)"
for command in translate summarize classify tag answer fill tokenize; do
  "$fovea" "$command" --help >help
  tr '\n' ' ' <help | grep -q 'A line that is not UTF-8.* and the exit status is 1\.' || fail "$(cat help)"
done
"$fovea" translate --help >help
for option in '--beam-size INT:INT in \[1 - 1000\]=5' '--normalize FLOAT:NONNEGATIVE=1' '--max-length-factor FLOAT:.*=2'; do
  grep -q -- "$option" help || fail "no $option in $(cat help)"
done

# What a training cannot be is refused before its folder is made.
says 1 "argument '--heads': expected a divisor of --dim, which is 16, got 3" train "${small[@]}" --heads 3 --output new
says 1 "argument '--heads': expected heads of an even width with --positions rotary, so a divisor of 8, got 16" \
  train "${small[@]}" --heads 16 --positions rotary --output new
says 1 "argument '--resume': expected a training in --output to go on with, got empty, which has no checkpoint.safetensors" \
  train "${small[@]}" --resume --output empty
mkdir empty
says 1 "argument '--resume': expected a training in --output to go on with, got empty, which has no checkpoint.safetensors" \
  train "${small[@]}" --resume --output empty
says 1 "argument '--output': expected a folder that can be written to, got source/model" train "${small[@]}" --output source/model
says 1 "argument '--output': expected a folder that can be written to, got source" train "${small[@]}" --output source
[[ ! -e new && -z $(ls empty) ]] || fail "a refused training left files: $(ls new empty)"
# One that fails late leaves nothing either. Here no weight can stay a number.
says 1 'training stopped at update 2: a value that is not finite' train "${small[@]}" --lr 1e30 --lr-schedule constant --max-updates 50 --output new
[[ ! -e new ]] || fail "a failed training left $(ls new)"
says 1 'training stopped at update 2' train "${small[@]}" --lr 1e30 --lr-schedule constant --max-updates 50 --output new/in/new
[[ ! -e new ]] || fail "a failed training left $(find new)"
# A model without its checkpoint is not written over.
cp -r model finished
rm finished/checkpoint.safetensors
says 1 "argument '--output': expected a folder without a model or its tokenizer, got finished, which has" \
  train "${small[@]}" --lr 1e30 --output finished
rm -r finished
says 1 "argument '--output': expected a folder, got an empty text" train "${small[@]}" --output ''

# Texts that are too short are named by their options.
printf '\n \n' >empty.txt
files() { printf -- '--train-source %s --train-target %s --valid-source source --valid-target source' "$1" "$1"; }
read -ra of_files <<<"$(files empty.txt)"
says 1 "argument '--train-source': expected at least one pair in which both sides have text, got none" train "${of_files[@]}" --output new
read -ra of_files <<<"$(files source)"
says 1 "argument '--train-source': expected at least one pair of at most 1 pieces (--max-length), got none" \
  train --model rnn --tokenizer whitespace "${of_files[@]}" --max-length 1 --max-updates 2 --output new
says 1 "argument '--train-text': expected at least 65 ids, a window and the token before it (--window), got" \
  train --model language --train-text source --valid-text source --window 64 --max-updates 2 --tokenizer characters --output new
[[ ! -e new ]] || fail "a training without data left $(ls new)"

# Short-lists.
says 1 "argument '--train-source': expected nothing beside --corpus generated" shortlist --model model --corpus generated --train-source source
says 1 "argument '--train-target': expected nothing beside --train-tsv" \
  shortlist --model model --train-tsv source --train-target source
says 1 "argument '--seed': expected nothing beside a corpus from files" \
  shortlist --model model --train-source source --train-target source --seed 3
says 1 "argument '--train-source': expected at least one pair of at most 200 pieces (--max-length), got none" \
  shortlist --model model --train-source empty.txt --train-target empty.txt
says 1 'nowhere: there is no such folder' shortlist --model nowhere --corpus generated
says 1 'language: is no translator of fovea train' shortlist --model language --corpus generated
says 1 'shortlist.bin: does not exist. Expected the file that fovea shortlist --model model writes, for --shortlist' \
  translate --model model --shortlist
cp source model/shortlist.bin
says 1 'begin with FOVEASL1. Expected the file that fovea shortlist --model model writes' translate --model model --shortlist
rm model/shortlist.bin

# A folder that does not run has no kind: its own reason is said, and not which option another model would need.
mkdir odd
printf '{"model_type": "esm"}\n' >odd/config.json
printf '{"model_type": "bart", "architectures": ["BartForCausalLM"]}\n' >causal.json
mkdir causal
mv causal.json causal/config.json
for command in 'translate --input source' 'summarize --input source' 'inspect --source-ids 5 --json' \
  'embed --hidden --json --ids-file source --target-ids-file source' 'embed --hidden --json --ids-file source' \
  'generate --prompt-ids 5 --max-new-tokens 100000' 'generate --prompt hi --load-state x'; do
  says 1 'model_type: expected one of the' ${command%% *} --model odd ${command#* }
  says 1 'a class whose head can be run' ${command%% *} --model causal ${command#* }
done

# Models that the command does not run.
for prompt in --prompt --prompt-ids; do
  says 1 'model: is a translator of fovea train: use fovea translate' generate --model model $prompt 5
done
for targets in '' '--target-ids-file source'; do
  says 1 'got "fovea-transformer", a translator of fovea train, which fovea translate runs' \
    embed --model model --hidden --json --ids-file source $targets
done
says 1 'model/config.json: expected a model with a head for labels of texts, got fovea-transformer' classify --model model the
says 1 'nowhere: there is no such folder' translate --model nowhere
says 1 "argument '--prompt-ids': expected ids below" generate --model language --prompt-ids 99999
# Options that would change nothing, and files.
says 1 "argument '--greedy': expected no --top-k beside it" generate --model language --prompt a --greedy --top-k 3
says 1 "argument '--greedy': expected no --temperature beside it" generate --model language --prompt a --greedy --temperature 2
"$fovea" generate --model language --prompt a --greedy --temperature 0 --length 2 >out || fail "--greedy beside --temperature 0"
says 1 "argument '--prompt': expected UTF-8" generate --model language --prompt $'\xff'
says 1 "argument '--stop': expected UTF-8" generate --model language --prompt a --stop $'\xff'
says 1 "argument '--min-new-tokens': expected at most --max-new-tokens 2, got 9" \
  summarize --model model --min-new-tokens 9 --max-new-tokens 2 a
says 1 "argument '--max-words': expected at least --min-words 10, got 5" corpus generated --output new --min-words 10 --max-words 5
says 1 "argument '--out': expected a file, or one for --weights, or --explain alone" attend --query q --key k
says 1 "argument '--json': expected nothing: with --target no text is translated" \
  translate --model model --input source --target source --alignment hard --json
says 1 "argument '--target': expected a file, because the source is standard input, got -" \
  translate --model model --target - --alignment hard
says 1 'nowhere: does not exist' translate --model model --input nowhere
says 1 "argument '--show': expected no --json beside it" translate --model model --input source --show --json
# A closed standard input has no lines.
timeout 60 "$fovea" translate --model model <&- >out 2>errors || fail "a closed standard input: $(cat errors)"
says 1 'model: cannot be read' translate --model model --input model

# What a terminal obeys stays out of an error, and help fits into a window.
says 2 "' [31mred'" $'\e[31mred'
printf '{"prompt": "the cat", "\\u001b[31mx\\u009b": 1}\n' >controls
says 1 'line failed' generate --model language --input controls
if LC_ALL=C grep -q $'\e\|\xc2\x9b' errors; then fail "control characters: $(cat errors)"; fi
mapfile -t commands < <("$fovea" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
((${#commands[@]} == 20)) || fail "not 20 commands, but ${#commands[@]} commands"
commands+=('bench cache' 'bench kernels' 'bench model' 'corpus manuals' 'score text' 'score bleu')
for command in "${commands[@]}"; do
  read -ra words <<<"$command"
  "$fovea" "${words[@]}" --help >out || fail "fovea $command --help"
  wide=$(awk 'length($0) > 110' out)
  [[ -z $wide ]] || fail "fovea $command --help is wide: $wide"
done
