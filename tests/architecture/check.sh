#!/usr/bin/env bash
# The rules of the source tree (docs/architecture.md) over a source tree: `check.sh ROOT`. Prints each breach as
# file:line: rule, and exits 1 if there is one.
set -euo pipefail
cd "$1"

# What each directory may include besides itself: everything below it.
engine_core="core"
engine_attention="core attention"
engine_kernels="core attention recurrence cache kernels"
engine="core attention recurrence cache kernels plan"
declare -A may=(
  [core]=$engine_core [attention]=$engine_attention [recurrence]="core recurrence" [cache]="core cache" [kernels]=$engine_kernels [plan]=$engine
  [mechanisms]="$engine mechanisms" [autograd]="$engine autograd" [nn]="$engine autograd nn" [files]="core files"
  [models]="$engine files autograd nn models" [text]="core files text" [train]="$engine files autograd nn models text train"
  [inspect]="core files inspect" [pictures]="core files inspect pictures"
  [bench]="$engine mechanisms files autograd nn models bench"
  [cli]="$engine mechanisms files autograd nn models text train inspect pictures bench cli"
)
breaches=0
breach() {
  echo "$1"
  breaches=$((breaches + 1))
}

# file<TAB>line<TAB>code without its // comment, of every C++ file under the folders given.
code_lines() {
  local folders=() folder
  for folder in "$@"; do [[ -d $folder ]] && folders+=("$folder"); done
  ((${#folders[@]})) || return 0
  find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' \) -print0 |
    xargs -0 -r awk -v OFS='\t' '{ sub(/(^|[ \t])\/\/.*/, ""); print FILENAME, FNR, $0 }'
}

for folder in src/*/ include/fovea/*/; do
  directory=$(basename "$folder")
  [[ -n ${may[$directory]:-} ]] || breach "$folder: a directory that tests/architecture/check.sh does not know"
done

for directory in "${!may[@]}"; do
  while IFS=$'\t' read -r file line include; do
    target=${include#fovea/}
    [[ $target == */* ]] || continue
    target=${target%%/*}
    [[ -n ${may[$target]:-} ]] || continue  # not one of ours: an outside library
    [[ " ${may[$directory]} " == *" $target "* ]] || breach "$file:$line: $directory may not include $target ($include)"
  done < <(code_lines "src/$directory" "include/fovea/$directory" |
    sed -nE 's/^([^\t]*\t[^\t]*\t)[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">].*/\1\2/p')
done

# kernels/simd is open to every family of kernels: it knows no problem, and of the other private headers only core's.
while IFS=$'\t' read -r file line include; do
  case $include in
    kernels/simd/* | core/* | fovea/* | hwy/*) ;;
    */*) breach "$file:$line: kernels/simd may not include $include" ;;
  esac
done < <(code_lines src/kernels/simd |
  sed -nE 's/^([^\t]*\t[^\t]*\t)[ \t]*#[ \t]*include[ \t]*"([^"]+)".*/\1\2/p')

# CLI11 stays in one file of the command: each file that includes it takes some 5 CPU seconds more.
while IFS=$'\t' read -r file line _; do
  [[ $file == src/cli/options.cpp ]] || breach "$file:$line: CLI11 beside src/cli/options.cpp; use cli/options.h"
done < <(code_lines src/cli | grep -E $'\t[ \t]*#[ \t]*include[ \t]*<CLI/' || true)

# A public header may include the standard library and Fovea's own public headers, nothing else.
while IFS=$'\t' read -r file line include; do
  case $include in
    '"fovea/'*) ;;
    '<'*/* | '<'*.h'>' | '"'*) breach "$file:$line: a public header includes $include" ;;
  esac
done < <(code_lines include | sed -nE 's/^([^\t]*\t[^\t]*\t)[ \t]*#[ \t]*include[ \t]*([<"][^">]+[">]).*/\1\2/p')

# The library neither prints nor ends the process: only the command does.
while IFS=$'\t' read -r file line _; do
  breach "$file:$line: the library prints or ends the process"
done < <(code_lines include src/{core,attention,recurrence,cache,kernels,plan,mechanisms,files,autograd,nn,models,text,train,inspect,pictures,bench} |
  grep -E $'\t.*(std::(cout|cerr|clog)|(^|[^_.>[:alnum:]])(printf|fprintf|vprintf|puts|putchar|perror|abort|exit|_exit|quick_exit|terminate) *\\()' || true)

# Nothing names a folder of the machine it was written on.
while IFS=: read -r file line _; do
  breach "$file:$line: names a folder of one machine"
done < <(grep -rnIE --include='*.'{h,cpp,cmake,sh,md,py,txt,json} '/(home|[w]ork|root|Users)/[[:alnum:]]' \
  include src tests examples cmake docs experiments README*.md CONTRIBUTING.md CMakeLists.txt CMakePresets.json run .ci 2>/dev/null || true)

if ((breaches)); then
  echo "$breaches breach(es)"
  exit 1
fi
echo "the rules hold"
