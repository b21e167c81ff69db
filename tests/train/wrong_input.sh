#!/usr/bin/env bash
# wrong_input.sh FOVEA: every mistake of a user gives one clear line and the right exit code.
set -uo pipefail
fovea=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

# refused CODE PATTERN COMMAND...: exit code, and a line on stderr that matches; with code 1 the error is one line, the
# last line (a report on the lines read so far may come before it)
refused() {
  local code=$1 pattern=$2 got error
  shift 2
  timeout 60 "$fovea" "$@" <"${input:-/dev/null}" >out 2>err
  got=$?
  error=$(if [[ $code == 1 ]]; then tail -n 1 err; else cat err; fi)
  if [[ $got != "$code" ]] || ! grep -Eq -- "$pattern" <<<"$error" || [[ $code == 1 && ! $error =~ ^fovea(\ [a-z-]+)*:\  ]]; then
    echo "wrong_input: fovea $*: exit $got (expected $code), stderr (expected '$pattern'):" >&2
    head -c 600 err >&2
    failed=1
  fi
}

"$fovea" corpus generated --output data --count 200 --held-out 10 --max-words 8 >/dev/null || exit 1
small=(--model rnn --dim-emb 8 --dim-rnn 8 --tokenizer whitespace --mini-batch-words 128 --max-updates 4 --cpu-threads 1)
valid=(--valid-source data.valid.en --valid-target data.valid.fr)
"$fovea" train "${small[@]}" --train-source data.train.en --train-target data.train.fr "${valid[@]}" --output good \
  2>err || { cat err >&2; exit 1; }

# Corpora.
head -n 100 data.train.fr >short.fr
head -c 20000 /dev/urandom >junk.en
head -c 1000000 /dev/zero | tr '\0' 'a' >long.en
{ head -n 199 data.train.en; cat long.en; echo; } >with_long.en
: >empty.en
on() { # on PATTERN SOURCE TARGET
  refused 1 "$1" train "${small[@]}" "${valid[@]}" --output bad --train-source "$2" --train-target "$3"
}
on 'nowhere\.en' nowhere.en data.train.fr
on 'short\.fr|data\.train\.en' data.train.en short.fr
on 'junk\.en' junk.en data.train.fr
on 'with_long\.en.*200' with_long.en data.train.fr
on 'empty|at least one' empty.en empty.en
on '\.' . data.train.fr
refused 1 'train-source' train "${small[@]}" --output bad
refused 1 'resume' train "${small[@]}" --train-source data.train.en --train-target data.train.fr "${valid[@]}" --output good
refused 1 'bad' train "${small[@]}" --train-source data.train.en --train-target data.train.fr "${valid[@]}" --output bad --resume
cp -r good cut && truncate -s 3000 cut/checkpoint.safetensors
refused 1 'cut/checkpoint' train "${small[@]}" --train-source data.train.en --train-target data.train.fr "${valid[@]}" \
  --output cut --resume
# The options of a resumed training are compared with its first options.
again=(train "${small[@]}" --train-source data.train.en --train-target data.train.fr "${valid[@]}" --output good --resume)
refused 1 'good/training\.json.*learn_rate is 0\.5 and was 0\.001' "${again[@]}" --lr 0.5
refused 1 'good/training\.json.*smoothing is 0\.2 and was 0\.1' "${again[@]}" --label-smoothing 0.2
refused 1 'valid_data is other data' train "${small[@]}" --train-source data.train.en --train-target data.train.fr \
  --valid-source data.test.en --valid-target data.test.fr --output good --resume
cp -r good unrecorded && rm unrecorded/training.json
refused 1 'unrecorded/training\.json' "${again[@]/good/unrecorded}"

# A long value is not repeated in full.
long=$(head -c 100000 /dev/zero | tr '\0' 'x')
short() { # short: the last command's stderr is short, and says how long the value was
  [[ $(wc -c <err) -lt 2000 ]] && grep -q '100,0[0-9]* characters' err ||
    { echo "wrong_input: a long value: $(wc -c <err) bytes of stderr: $(head -c 300 err)" >&2; failed=1; }
}
refused 2 'characters' train --model "$long" --output bad
short
refused 2 'characters' train "--$long" --output bad
short
refused 1 'characters' translate --model "$long"
short
cp -r good wide && sed -i "s/\"gru\"/\"$long\"/" wide/config.json
refused 1 'wide/config\.json.*cell.*characters' translate --model wide
short

# Models.
refused 1 'nowhere' translate --model nowhere
for file in config.json vocab.json model.safetensors; do
  for damage in missing cut junk; do
    rm -rf hurt && cp -r good hurt
    case $damage in
      missing) rm "hurt/$file" ;;
      cut) truncate -s 50 "hurt/$file" ;;
      junk) cp junk.en "hurt/$file" ;;
    esac
    refused 1 'hurt' translate --model hurt
  done
done

# Text to translate.
input=junk.en refused 1 'line' translate --model good
input=long.en refused 1 'line' translate --model good
yes word | head -n 5000 | tr '\n' ' ' >many.en
input=many.en refused 1 '1 of 1 line failed' translate --model good
grep -q 'standard input (line 1): --max-length: expected at most 1000 pieces, got 5000' err ||
  { echo "wrong_input: a line of 5000 pieces: $(head -c 300 err)" >&2; failed=1; }
refused 1 'nowhere\.txt' translate --model good --input nowhere.txt
refused 1 'no/such/place' translate --model good --output no/such/place

# Scores.
refused 1 'nowhere' score bleu --reference nowhere --hypothesis data.test.fr
refused 1 'lines' score bleu --reference data.test.fr --hypothesis short.fr
refused 1 'junk\.en' score bleu --reference junk.en --hypothesis junk.en
refused 1 'junk\.en|data\.test\.fr' score alignment --gold data.test.fr --hypothesis data.test.fr

# Options that would be ignored, or that contradict each other.
files=(--train-source data.train.en --train-target data.train.fr "${valid[@]}" --output unused)
refused 1 '--dim-rnn' train --model transformer --dim-rnn 64 "${files[@]}"
refused 1 '--heads' train --model rnn --heads 4 "${files[@]}"
refused 1 '--query' train --model rnn --attention none --query before "${files[@]}"
refused 1 '--train-source' train --corpus generated "${files[@]}"
refused 1 '--average' train --model rnn --average 1 "${files[@]}"
refused 1 '--recompute-activations' train --model rnn --recompute-activations "${files[@]}"
refused 1 '--corpus-size' train --model rnn --corpus-size 5 "${files[@]}"
refused 1 '--language' train --model rnn --corpus generated --language de --output unused
refused 1 '--train-source' train --model rnn --train-tsv both.tsv "${files[@]}"
refused 1 '--lr-warmup' train --model rnn --lr-schedule constant --lr-warmup 5 "${files[@]}"
refused 1 '--tokenizer' train --model rnn --dim-emb 8 --dim-rnn 8 --tokenizer bpe "${files[@]/unused/good}" --resume
refused 2 'finite' train --model rnn --lr nan "${files[@]}"
refused 2 'finite' train --model rnn --max-minutes inf "${files[@]}"
refused 1 '--language' corpus gettext --language en --output same
refused 1 '--n-best.*--beam-size 2' translate --model good --beam-size 2 --n-best 3
refused 1 '--target' translate --model good --target data.test.fr
input=data.test.en refused 1 '--target.*lines' translate --model good --target short.fr --alignment hard
refused 1 '--source.*UTF-8' inspect --model good --html p.html --source $'\xff'
refused 1 '--source.*500 pieces' inspect --model good --html p.html --source "$(cat many.en)"
refused 1 'at least one line' score alignment --gold empty.en --hypothesis empty.en
refused 1 '--beam-size' translate --model good --target data.test.fr --alignment hard --beam-size 2
cp data.test.en both && refused 1 '--output' translate --model good --input both --output ./both
cmp -s both data.test.en || { echo "wrong_input: the input was overwritten" >&2; failed=1; }
echo before >after && refused 1 'nowhere\.txt' translate --model good --input nowhere.txt --output after
[[ $(cat after) == before ]] || { echo "wrong_input: the output was emptied for nothing" >&2; failed=1; }
refused 1 '--html.*--graph' inspect --model good --source a --html p.svg --graph ./p.svg
refused 1 '\.png, \.svg or \.pdf' inspect --model good --source a --picture page.jpg
refused 1 '\.png, \.svg or \.pdf' inspect --model good --source a --graph page
refused 1 'at least one' inspect --model good --source a
refused 1 '--word.*--graph or --show' inspect --model good --source a --html p.html --word a
refused 2 'theme' inspect --model good --source a --picture p.png --theme pink
mkdir kept && touch kept/thesis.tex
refused 1 '--output.*folder' demo --output kept

# Usage.
refused 2 '--output' train
refused 2 'did you mean --beam-size' translate --model good --beam-sise 3
refused 2 'did you mean translate' translat --model good
refused 2 "^'nonsense' is no command; .fovea --help. lists them" nonsense
refused 2 "^'nonsense' is no command; .fovea bench --help. lists them" bench nonsense
refused 2 "^'train=' is no command; did you mean train" train=
refused 2 "'--profile': it belongs behind 'translate'" --profile trace.json translate --model good
refused 2 'gated' train --model gated --output bad
refused 2 'beam-size' translate --model good --beam-size many

# A full disk is an error, not a success.
if [[ -c /dev/full ]]; then
  "$fovea" corpus generated --help >/dev/full 2>err
  [[ $? == 1 ]] || { echo "wrong_input: a full standard output was taken for a success" >&2; failed=1; }
fi
exit "$failed"
