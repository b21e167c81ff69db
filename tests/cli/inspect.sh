#!/usr/bin/env bash
# inspect.sh FOVEA: tests the files of `fovea inspect`, for an encoder's self-attention and for a decoder's attention to the source.
. "$(dirname "$0")/script.bash"

"$fovea" train --model transformer --output model --corpus generated --corpus-size 300 --tokenizer whitespace --dim 16 \
  --dim-ffn 16 --heads 2 --layers 2 --mini-batch-words 200 --max-updates 2 --cpu-threads 1 2>/dev/null
inspect() { "$fovea" inspect --model model --source 'The cat sat on the mat .' --target 'Le chat .' "$@"; }

inspect --html page.html --picture maps.svg --graph graph.svg --word sat --word on >said
[[ $(cat said) == 'Le chat .' ]] || fail "printed $(cat said)"
grep -q 'what “sat” attends to' graph.svg && grep -q 'what “on” attends to' graph.svg || fail "no headings in the graph"
grep -q 'encoder.self layer 2' graph.svg || fail "the default is the encoder's last layer"
grep -q 'decoder.cross layer 1' maps.svg || fail "not every map in the picture"
inspect --weights int8 --html coarse.html >said
cmp -s page.html coarse.html && fail "--weights int8 changes nothing"
inspect --graph again.svg --word sat --word on >/dev/null
cmp graph.svg again.svg || fail "another picture of the same"
inspect --graph dark.svg --word sat --word on --theme dark >/dev/null
cmp -s graph.svg dark.svg && fail "--theme dark changes nothing"
[[ $(head -c 4 page.html) == '<!DO' ]] || fail "no page"

# One file of each kind, by its suffix; --png is --picture.
inspect --png maps.png --graph graph.pdf >/dev/null
[[ $(head -c 4 maps.png | tail -c 3) == PNG && $(head -c 4 graph.pdf) == %PDF ]] || fail "suffixes"

# Source with target: a source word is a key, a target word is a query.
inspect --graph cross.svg --map 'decoder.cross layer 1' --word cat --word chat --heads 2 >/dev/null
grep -q 'what attends to “cat”' cross.svg && grep -q 'what “chat” attends to' cross.svg || fail "cross-attention"
grep -q 'head 2' cross.svg || fail "head 2"
grep -q 'head 1' cross.svg && fail "head 1 was not asked for"

# The terminal: a line for each word, which ends with the mean weight and those of both heads. The means are a distribution.
inspect --show --word sat >shown
awk 'NF > 3 && $(NF - 2) ~ /^[0-9][.][0-9][0-9]$/ { sum += $(NF - 2); ++lines } END { exit !(lines == 8 && sum > 0.95 && sum < 1.05) }' shown ||
  fail "weights of sat: $(cat shown)"
grep -q '\[sat\]' shown || fail "sat is not picked out: $(cat shown)"
inspect --show --map decoder >shown
[[ $(grep -c 'what each attends to most' shown) == 4 ]] || fail "four maps of the decoder: $(cat shown)"

# The error for an unknown name lists the known names.
refused() {
  local pattern=$1
  shift
  inspect "$@" >/dev/null 2>err && fail "accepted: $*"
  grep -Eq -- "$pattern" err || fail "$*: $(cat err)"
}
refused "'dog'" --show --word dog
refused 'encoder.self layer 1' --show --map nothing
refused '1 to 2' --show --heads 3
refused 'different words' --graph x.svg --map encoder --map decoder --word .
echo "inspect: pages, pictures, graphs"
