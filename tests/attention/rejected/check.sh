#!/bin/bash
# check.sh COMPILER INCLUDE_FOLDER: what the compiler says of code that does not fit. Each case of cases.txt must give
# one error, our sentence, in few lines; a case without a sentence must compile.
set -u
compiler=$1 include=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export LC_ALL=C
cat >"$work/all.h" <<'END'
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>
#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/spec.h"
using namespace fovea;
END
# On Arm GCC notes for every mod that it passes a pair of numbers otherwise than before 10.1; that is no complaint.
flags=(-std=c++20 -O2 -Wno-psabi -I"$include")
# Other compilers say the same sentence in another number of lines, and read no header that GCC compiled.
gcc=no
if "$compiler" --version | grep -q 'Free Software Foundation'; then
  gcc=yes
  "$compiler" "${flags[@]}" -x c++-header "$work/all.h" -o "$work/all.h.gch" || exit 1
fi

failed=0 cases=0
fail() {
  echo "FAILED $name: $1"
  sed 's/^/    /' "$work/said"
  failed=1
}
check() {
  [ -n "$name" ] || return
  cases=$((cases + 1))
  "$compiler" "${flags[@]}" -fsyntax-only -I"$work" -include all.h "$work/case.cpp" 2>"$work/said"
  local status=$?
  if [ -z "$sentence" ]; then
    [ $status -eq 0 ] && [ ! -s "$work/said" ] || fail "should compile"
    return
  fi
  [ $status -ne 0 ] || fail "should not compile"
  grep -E 'error: ' "$work/said" | head -1 | grep -qF -- "$sentence" || fail "the first error is not: $sentence"
  [ $gcc = yes ] || return
  [ "$(grep -cE 'error: ' "$work/said")" = 1 ] || fail "more than one error"
  # How the file came to be included is no part of what went wrong.
  local lines
  lines=$(grep -cvE '^In file included from|^ +from ' "$work/said")
  [ "$lines" -le "$most" ] || fail "$lines lines, at most $most expected"
}

# "== NAME [LINES]", "> SENTENCE", then the code.
name='' sentence='' most=0
while IFS= read -r line || [ -n "$line" ]; do
  case $line in
    '== '*)
      check
      read -r _ name most <<<"$line"
      most=${most:-7} sentence=''
      : >"$work/case.cpp"
      ;;
    '> '*) sentence=${line#> } ;;
    '#'*) ;;
    *) echo "$line" >>"$work/case.cpp" ;;
  esac
done <"$here/cases.txt"
check
[ $cases -ge 40 ] || { echo "FAILED: only $cases cases were read"; failed=1; }
echo "$cases cases"
exit $failed
