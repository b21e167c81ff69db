# What the tests of commands share. A script sources it with the command as its first argument; it then stands in a folder of its own,
# $work, which is deleted at the end, and $fovea is the command.
set -euo pipefail
fovea=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
test_name=$(basename "$0" .sh)
cd "$work"
fail() {
  echo "$test_name: $*" >&2
  exit 1
}
# refused WORDS COMMAND...: the command fails, and says WORDS.
refused() {
  local words=$1
  shift
  if "$@" >out 2>errors; then fail "took $*"; fi
  grep -qF -- "$words" errors || fail "expected '$words', got '$(cat errors)'"
}
