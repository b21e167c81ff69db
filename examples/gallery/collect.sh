#!/usr/bin/env bash
# `collect.sh PAGE`: gathers from the pages of the examples, in the order in which PAGE links them, the figures that are
# promised, and puts them between PAGE's lines `<!-- figures -->` and `<!-- end -->`.
set -euo pipefail
page=$1
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

# `promised MARK NAME`: rows of the table that stands between the marks of MARK.
promised() {
  sed -n "/^<!-- figures $1 -->\$/,/^<!-- end $1 -->\$/p" "examples/${1%% *}/README.md" |
    awk -F ' *\\| *' -v name="$2" 'NF == 8 && $7 ~ /[≥≤]/ {
      printf "| %s | %s | %s | %s | %s | %s | %s |\n", name, $2, $3, $4, $5, $6, $7 }'
}

table() {
  echo '| example | figure | of | seed 1 | seed 2 | seed 3 | promised |'
  echo '|---|---|---|---:|---:|---:|---|'
  local name
  grep -oE '^\| \[[a-z]+\]\(\.\./examples/[a-z]+/README\.md\)' "$page" | sed -E 's/^\| \[([a-z]+)\].*/\1/' |
    while read -r name; do
      promised "$name" "$name"
      # An example with a setup.sh is always run with what that fetches.
      if [[ -x examples/$name/setup.sh ]]; then promised "$name data" "$name"; else promised "$name data" "$name --data"; fi
    done
}

collected=$(table)
awk -v table="$collected" '
  /^<!-- end -->$/ { inside = 0 }
  !inside
  /^<!-- figures -->$/ { print table; inside = 1 }' "$page" >"$page.partial"
mv "$page.partial" "$page"
