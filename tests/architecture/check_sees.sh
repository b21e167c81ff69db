#!/usr/bin/env bash
# check.sh is shown one breach at a time and must see each: `check_sees.sh CHECK_SCRIPT`.
set -euo pipefail
check=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

clean_tree() {
  rm -rf "$folder/tree"
  mkdir -p "$folder/tree"/{src/{core,attention,cli,text},include/fovea/{core,attention}}
  echo '#include <vector>  // std::cout << exit(1) in a comment is fine' >"$folder/tree/include/fovea/core/a.h"
  echo '#include "fovea/core/a.h"' >"$folder/tree/src/attention/a.cpp"
  echo 'int f() { return snprintf(nullptr, 0, "x"); }' >"$folder/tree/src/core/a.cpp"
  echo 'int main() { std::cout << 1; }' >"$folder/tree/src/cli/main.cpp"
}
must_fail() {  # description, file, line of code
  clean_tree
  mkdir -p "$(dirname "$folder/tree/$2")"
  echo "$3" >"$folder/tree/$2"
  if bash "$check" "$folder/tree" >"$folder/said"; then
    echo "not seen: $1"
    failures=$((failures + 1))
  elif ! grep -qF "$(dirname "$2")" "$folder/said"; then
    echo "seen, but $2 is not named: $1"
    failures=$((failures + 1))
  fi
}

clean_tree
bash "$check" "$folder/tree" >"$folder/said" || { cat "$folder/said"; echo "a clean tree is refused"; failures=1; }
must_fail "an upward include" src/core/b.cpp '#include "fovea/attention/mask.h"'
must_fail "an upward include of a private header" src/attention/b.cpp '#include "kernels/problem.h"'
must_fail "text includes attention" src/text/b.cpp '#include "fovea/attention/mask.h"'
must_fail "simd includes a problem" src/kernels/simd/b.h '#include "kernels/problem.h"'
must_fail "CLI11 in a command" src/cli/b.cpp '#include <CLI/CLI.hpp>'
must_fail "Highway in a public header" include/fovea/core/b.h '#include <hwy/highway.h>'
must_fail "a private header in a public one" include/fovea/core/b.h '#include "core/secret.h"'
must_fail "printing" src/core/b.cpp 'void f() { std::cout << 1; }'
must_fail "aborting" src/attention/b.cpp 'void f() { abort(); }'
must_fail "an unknown directory" src/cellar/b.cpp 'int x;'
must_fail "a machine's folder" src/core/b.cpp "const char* p = \"/ho""me/somebody/x\";"
((failures == 0)) && echo "every breach is seen"
exit "$failures"
