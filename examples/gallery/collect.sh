#!/usr/bin/env bash
# `collect.sh PAGE`: collects the promised figures from the pages of the examples, each beside its baseline, and writes
# them between PAGE's lines `<!-- figures -->` and `<!-- end -->`. The pages come in the order in which PAGE links them.
# The headings are in the language of PAGE, Chinese where a folder zh is in its path; names of figures are those of the
# examples' pages.
#
# The baseline of a promise is read from the example's own table: among the rows with the same figure it is the best one
# that has no `≥` promise itself and was run from every seed. A promise of `≤` (a network that lacks a necessary part) stands beside the best row of
# all. A figure that is already a difference or a ratio has no such row. Its page then names the rows that it is computed
# from, or gives in quotes a text that holds by definition:
#
#   <!-- beside FIGURE: FIGURE | OF; OF -->
#   <!-- beside FIGURE: "TEXT" -->
#
# A promise without either is an error, and so is a mark that names a figure or a row that the page does not have.
set -euo pipefail
shopt -s inherit_errexit
page=$1
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

# `promised MARK NAME`: rows of the table that stands between the marks of MARK.
promised() {
  awk -F ' *\\| *' -v mark="$1" -v name="$2" '
    function mean(i) { return (seed1[i] + seed2[i] + seed3[i]) / 3 }
    function values(i,   whose) {
      whose = of[i]
      sub(/ \(baseline\)$/, "", whose)
      return whose ": " seed1[i] ", " seed2[i] ", " seed3[i]
    }
    function number(text) {
      gsub(/[^0-9.-]/, "", text)
      return text + 0
    }
    # A value in bold where it misses one of its promises, such as "≥ 24, ≤ 24".
    function marked(value, promised,   parts, count, k) {
      count = value ~ /[0-9]/ ? split(promised, parts, ", ") : 0
      for (k = 1; k <= count; ++k)
        if (parts[k] ~ /≥/ ? number(value) < number(parts[k]) : number(value) > number(parts[k]))
          return "**" value "**"
      return value
    }
    function fail(problem) {
      print FILENAME ": " problem >"/dev/stderr"
      failed = 1
    }
    # The rows that a mark names, "FIGURE | OF; OF".
    function named(names,   at, what, whose, count, j, k, found, all) {
      at = index(names, " | ")
      what = substr(names, 1, at - 1)
      count = split(substr(names, at + 3), whose, "; ")
      all = "(" what ") "
      for (k = 1; k <= count; ++k) {
        found = 0
        for (j = 1; j <= rows; ++j) if (figure[j] == what && of[j] == whose[k]) found = j
        if (!found) fail("the mark \"beside\" names \"" what " | " whose[k] "\", and the table has no such row")
        else all = all (k > 1 ? "; " : "") values(found)
      }
      return all
    }
    function beside(i,   best, j) {
      if (figure[i] in text) return text[figure[i]]
      if (figure[i] in row) return named(row[figure[i]])
      best = 0
      for (j = 1; j <= rows; ++j)
        if (j != i && figure[j] == figure[i] && seed2[j] != "-" && (promise[i] !~ /≥/ || promise[j] !~ /≥/))
          if (!best || mean(j) > mean(best)) best = j
      if (best) return values(best)
      fail("the promised figure \"" figure[i] "\" has no baseline: no other row has the same figure, and no line " \
        "<!-- beside " figure[i] ": FIGURE | OF --> names one")
    }
    /^<!-- beside .*: .* -->$/ {
      line = $0
      sub(/^<!-- beside /, "", line)
      sub(/ -->$/, "", line)
      at = index(line, ": ")
      value = substr(line, at + 2)
      if (value ~ /^".*"$/) text[substr(line, 1, at - 1)] = substr(value, 2, length(value) - 2)
      else row[substr(line, 1, at - 1)] = value
    }
    NF == 8 { on_page[$2] = 1 }
    $0 == "<!-- end " mark " -->" { inside = 0 }
    inside && NF == 8 && $2 != "figure" && $2 !~ /^-+$/ {
      ++rows
      figure[rows] = $2; of[rows] = $3; seed1[rows] = $4; seed2[rows] = $5; seed3[rows] = $6; promise[rows] = $7
    }
    $0 == "<!-- figures " mark " -->" { inside = 1 }
    END {
      for (name_of in text) if (!(name_of in on_page)) fail("a mark \"beside\" is for \"" name_of "\", no figure of the page")
      for (name_of in row) if (!(name_of in on_page)) fail("a mark \"beside\" is for \"" name_of "\", no figure of the page")
      for (i = 1; i <= rows; ++i)
        if (promise[i] ~ /[≥≤]/)
          printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", name, figure[i], of[i], marked(seed1[i], promise[i]),
            marked(seed2[i], promise[i]), marked(seed3[i], promise[i]), promise[i], beside(i)
      exit failed
    }' "examples/${1%% *}/README.md"
}

table() {
  if [[ $page == */zh/* ]]; then
    echo '| 示例 | 数字 | 属于 | 种子 1 | 种子 2 | 种子 3 | 承诺 | 旁边的基线：种子 1、2、3 |'
  else
    echo '| example | figure | of | seed 1 | seed 2 | seed 3 | promised | beside it: seeds 1, 2, 3 |'
  fi
  echo '|---|---|---|---:|---:|---:|---|---|'
  local name
  grep -oE '^\| \[[a-z]+\]\((\.\./)+examples/[a-z]+/README\.md\)' "$page" | sed -E 's/^\| \[([a-z]+)\].*/\1/' |
    while read -r name; do
      promised "$name" "$name"
      # An example with a setup.sh is always run with the data that the script fetches.
      if [[ -x examples/$name/setup.sh ]]; then promised "$name data" "$name"; else promised "$name data" "$name --data"; fi
    done
}

collected=$(table)
awk -v table="$collected" '
  /^<!-- end -->$/ { inside = 0 }
  !inside
  /^<!-- figures -->$/ { print table; inside = 1 }' "$page" >"$page.partial"
mv "$page.partial" "$page"
