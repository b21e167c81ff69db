#!/usr/bin/env bash
# fovea shortlist and fovea translate --shortlist: a list is learnt, read, and changes what may be written.
. "$(dirname "$0")/script.bash"

"$fovea" train --model transformer --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 --dim-ffn 16 \
  --heads 2 --layers 1 --mini-batch-words 200 --lr-warmup 5 --cpu-threads 1 --output model --max-updates 8 2>log ||
  fail "$(cat log)"
printf '%s\n' 'the cat sat on the mat .' 'a dog' 'the dog sees a cat .' >source

if "$fovea" translate --model model --input source --shortlist >out 2>error; then fail "took a folder without a list"; fi
grep -qF shortlist.bin error || fail "$(cat error)"
"$fovea" shortlist --model model --corpus generated --corpus-size 300 2>said || fail "$(cat said)"
grep -qF '300 pairs; ' said || fail "$(cat said)"

# A list of a line's own pieces alone writes its words, the same in any batch.
"$fovea" shortlist --model model --corpus generated --corpus-size 300 --always 0 --translations 0 2>said
"$fovea" translate --model model --input source --beam-size 1 --shortlist >listed
while read -r line <&3 && IFS= read -r text <&4; do
  for word in $text; do
    [[ " $line <unk> " == *" $word "* ]] || fail "'$word' for '$line'"
  done
  [[ $("$fovea" translate --model model --beam-size 1 --shortlist <<<"$line") == "$text" ]] || fail "alone: $line"
done 3<source 4<listed

head -c 40 model/shortlist.bin >cut
cp cut model/shortlist.bin
if "$fovea" translate --model model --input source --shortlist >out 2>error; then fail "took a file that was cut"; fi
grep -qF 'the file ends' error || fail "$(cat error)"
echo "shortlist: learnt, read, and kept to"
