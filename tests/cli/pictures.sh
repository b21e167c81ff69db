#!/usr/bin/env bash
# pictures.sh FOVEA: runs the commands of docs/pictures.md and of the tour's chapter 6 as they stand there, with less training.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/script.bash"
mkdir bin
ln -s "$fovea" bin/fovea
PATH=$PWD/bin:$PATH
export LC_ALL=C.UTF-8

# `compare_terminal PAGE SAID`: what PAGE shows of the terminal is what the commands print, but for numbers and strokes.
compare_terminal() {
  python3 - "$1" "$2" <<'END'
import re
import sys

page, said = (open(path, encoding="utf-8").read() for path in sys.argv[1:])


def form(text: str) -> str:
    return re.sub("[\u2800-\u28ff0-9. ]", "", text)


for kind, block in re.findall(r"^```([^\n]*)\n(.*?)^```$", page, re.M | re.S):
    if not kind and form(block) not in form(said):
        sys.exit(f"no command printed the like of\n{block}")
END
}

for page in docs/pictures.md docs/zh/pictures.md docs/tour/6-seeing.md docs/zh/tour/6-seeing.md; do
  awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/$page" >commands
  parts=('fovea train' ' --graph ' ' --show')
  [[ $page != */pictures.md ]] || parts+=(' --picture ' ' --html ')
  for part in "${parts[@]}"; do
    grep -q -e "$part" commands || fail "$page: no command with '$part'"
  done
  # Two updates on 300 pairs in place of the training.
  sed -i -E 's/--max-updates [0-9]+/--max-updates 2 --corpus-size 300/; s/--lr-warmup [0-9]+/--lr-warmup 1/' commands
  grep -q -e '--max-updates 2 ' commands || fail "$page: the training has no --max-updates"
  bash -euo pipefail commands >said 2>errors || fail "$page: $(tail -n 3 errors)"
  compare_terminal "$root/$page" said || fail "$page"
  # Every file that a command writes.
  for written in $(grep -oE -e '--(graph|picture|html) [^ ]+' commands | cut -d' ' -f2); do
    [[ -s $written ]] || fail "$page: no $written"
    rm "$written"
  done
  rm -rf model
done

# The libraries that draw are loaded by a command that draws, and by no other.
! ldd "$fovea" | grep -qE 'pango|cairo' || fail "the command links Pango and Cairo"
mkdir alone
cp "$fovea" alone
alone/fovea --version >/dev/null || fail "a command alone does not start"
draw() { "$1" inspect --model nothing --source a --picture a.png; }
if draw alone/fovea 2>errors; then fail "drew without its module"; fi
grep -qF "$PWD/alone/fovea-drawing.so: is not there, and neither is " errors || fail "the missing module: $(cat errors)"
echo 'no module' >alone/fovea-drawing.so
if draw alone/fovea 2>errors; then fail "drew with a damaged module"; fi
grep -qF 'fovea-drawing.so: cannot be loaded' errors || fail "a damaged module: $(cat errors)"
echo "pictures: the commands of four pages"
