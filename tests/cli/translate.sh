#!/usr/bin/env bash
# translate.sh FOVEA: `fovea translate` answers lines as they come, in any windows with the same bits, ends in order at a signal, and
# names the lines that it cannot translate.
. "$(dirname "$0")/script.bash"
"$fovea" train --model transformer --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 --dim-ffn 16 --heads 2 --layers 1 \
  --mini-batch-words 200 --lr-warmup 5 --cpu-threads 1 --output model --max-updates 8 2>log || fail "$(cat log)"
"$fovea" corpus generated --output data --count 150 --held-out 10 --max-words 12 >/dev/null
{ head -n 70 data.train.en; echo; tail -n 70 data.train.en; } >source
translate() { "$fovea" translate --model model --cpu-threads "${threads:-2}" --max-length-factor "${factor:-1}" "$@"; }

# Any number of threads, any batches and any windows give the same bits.
for beam in 1 3; do
  options=(--beam-size $beam --json --alignment soft)
  translate "${options[@]}" --input source >whole
  [[ $(wc -l <whole) == 141 ]] || fail "$(wc -l <whole) lines"
  for threads in 1 5; do threads=$threads translate "${options[@]}" --input source | cmp - whole || fail "$threads threads"; done
  threads=
  for batch in 1 2 7 500; do translate "${options[@]}" --mini-batch $batch <source | cmp - whole || fail "batches of $batch"; done
  {
    head -n 3 source
    sleep 0.4
    tail -n +4 source | head -n 90
    sleep 0.4
    tail -n +94 source
  } | translate "${options[@]}" | cmp - whole || fail "lines that come by and by"
done

# An endless input, and a reader that has seen enough.
set +e
yes 'the cat' | timeout 60 "$fovea" translate --model model --beam-size 1 | head -n 40 >out
status=("${PIPESTATUS[@]}")
set -e
[[ ${status[1]} == 141 && $(wc -l <out) == 40 ]] || fail "an endless input: ${status[*]}, $(wc -l <out) lines"

# A conversation: each line is answered before the next one comes. A signal ends the waiting.
for signal in INT TERM; do
  coproc talk { exec "$fovea" translate --model model --beam-size 1 2>errors; }
  pid=$talk_PID
  for line in 'the cat' 'a dog' ''; do
    echo "$line" >&"${talk[1]}"
    IFS= read -t 60 -r answer <&"${talk[0]}" || fail "no answer to '$line'"
    [[ $answer == "$(factor=2 translate --beam-size 1 <<<"$line")" ]] || fail "'$line' gave '$answer'"
  done
  printf 'half a li' >&"${talk[1]}"
  kill -$signal "$pid"
  set +e
  wait "$pid"
  status=$?
  set -e
  [[ $status == $((128 + $(kill -l $signal))) ]] || fail "ended by $signal with status $status"
  grep -qx 'stopped; the first 3 lines are written' errors || fail "$(cat errors)"
done

# A signal in the middle leaves the first lines, and says how many.
for _ in $(seq 200); do cat source; done >long
rm out
"$fovea" translate --model model --cpu-threads 2 --max-length-factor 1 --input long --output out 2>errors &
pid=$!
for _ in $(seq 600); do
  [[ -s out ]] && break
  sleep 0.1
done
kill -TERM $pid
set +e
wait $pid
status=$?
set -e
written=$(wc -l <out)
[[ $status == 143 && $written -gt 0 && $written -lt 28200 ]] || fail "stopped with status $status behind $written lines"
grep -qx "stopped; the first $written lines are written" errors || fail "$written lines: $(cat errors)"
translate --input source >whole
cmp out <(for _ in $(seq 200); do cat whole; done 2>/dev/null | head -n "$written") || fail "the lines before the signal"

# A line that cannot be translated is named, and the others keep their places and their bits.
{
  echo 'the cat'
  printf 'a \xff dog\n'
  echo 'a dog'
  printf 'the %.0s' $(seq 30)
  echo
  head -c 70000 /dev/zero | tr '\0' x
  echo
  echo 'the dog'
} >bad
sed -n '1p;3p;6p' bad | translate --max-length 20 >good
for input in bad -; do
  name=$input
  [[ $input == - ]] && name='standard input'
  refused '3 of 6 lines failed' translate --max-length 20 --input $input <bad
  cat >expected <<END
fovea: $name (line 2): is not valid UTF-8 (byte 3 of the line)
fovea: $name (line 4): --max-length: expected at most 20 pieces, got 30
fovea: $name (line 5): is longer than 65536 bytes
END
  head -n 3 errors | diff - expected || fail "the lines that failed"
  sed -n '1p;3p;6p' out | cmp - good || fail "the lines beside those that failed"
  [[ $(wc -l <out) == 6 && -z $(sed -n '2p;4p;5p' out) ]] || fail "empty lines: $(cat out)"
done
refused '(line 4)' translate --max-length 20 --json --input bad
python3 - out <<'END' || fail "errors in JSON: $(cat out)"
import json, sys
answers = [json.loads(line) for line in open(sys.argv[1])]
assert [answer["line"] for answer in answers] == [1, 2, 3, 4, 5, 6]
assert ["error" in answer for answer in answers] == [False, True, False, True, True, False]
assert answers[3]["error"] == "--max-length: expected at most 20 pieces, got 30"
END
refused '(line 4)' translate --max-length 20 --n-best 2 --input bad
[[ $(cut -d ' ' -f 1 out | tr '\n' ' ') == '0 0 2 2 5 5 ' ]] || fail "--n-best: $(cat out)"

# Two files that are aligned are read whole: nothing is written where a line is bad.
refused 'bad (line 2): is not valid UTF-8' "$fovea" translate --model model --input bad --target bad --alignment hard
refused 'standard input (line 2): 30 pieces' "$fovea" translate --model model --max-length 20 --target good --alignment hard < <(sed -n '1p;4p' bad)
[[ ! -s out ]] || fail "aligned before all was read: $(cat out)"
