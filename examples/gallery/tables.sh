#!/usr/bin/env bash
# `tables.sh PAGE...`: writes figures of an example's page as a table with a row for each variant, between PAGE's lines
#
#   <!-- table EXAMPLE | TITLE | FIGURE as TITLE | FIGURE as TITLE ... -->
#   <!-- end table -->
#
# The values are those of seed 1. Times and rates are the medians of the seeds: other work of the machine slows one seed
# more than another. Where some seeds did not measure one, it is that of the others. The rows are the variants that have any of these figures, in the order of the
# example's page. A line before gives them other names, such as Chinese ones:
#
#   <!-- rows OF as NAME | OF as NAME ... -->
#
# A figure or a variant that the example's page does not have is an error.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

for page in "$@"; do
  awk -v root="$root" '
    function fail(problem) {
      print FILENAME ":" FNR ": " problem >"/dev/stderr"
      failed = 1
    }
    # The part of "A as B" before and behind " as ".
    function before(text) { return substr(text, 1, index(text, " as ") - 1) }
    function behind(text) { return substr(text, index(text, " as ") + 4) }
    function content(line, word) {
      sub("^<!-- " word " ", "", line)
      sub(/ -->$/, "", line)
      return line
    }
    # Seconds, or the rate of "x / s"; -1 for what is neither.
    function time_of(text) {
      if (text !~ /^[0-9.]+ (s|ms|µs|ns|\/ s)$/) return -1
      if (text ~ / ms$/) return text / 1e3
      if (text ~ / µs$/) return text / 1e6
      if (text ~ / ns$/) return text / 1e9
      return text + 0
    }
    function median(cell,   s, other, count, below, time, chosen) {
      if (time_of(cell[4]) < 0) return cell[4]
      for (s = 4; s <= 6; ++s) count += time_of(cell[s]) >= 0
      for (s = 4; s <= 6; ++s) {
        time = time_of(cell[s])
        if (time < 0) continue
        below = 0
        for (other = 4; other <= 6; ++other)
          below += time_of(cell[other]) >= 0 && (time_of(cell[other]) < time || (time_of(cell[other]) == time && other < s))
        if (below == int((count - 1) / 2)) chosen = cell[s]
      }
      return chosen
    }
    # Reads the figures of an example: value[figure, of], and the order of the variants.
    function read_example(name,   file, line, cell, inside) {
      file = root "/examples/" name "/README.md"
      delete value; delete seen; delete known
      variants = 0
      while ((getline line <file) > 0) {
        if (line == "<!-- end " name " -->") inside = 0
        if (inside && split(line, cell, / *\| */) == 8 && cell[2] != "figure" && cell[2] !~ /^-+$/) {
          value[cell[2], cell[3]] = median(cell)
          known[cell[2]] = 1
          if (!(cell[3] in seen)) { seen[cell[3]] = 1; variant[++variants] = cell[3] }
        }
        if (line == "<!-- figures " name " -->") inside = 1
      }
      close(file)
      if (!variants) fail(file " has no figures")
    }
    function write_table(text,   count, column, i, j, row, any, head, rule, found) {
      count = split(text, column, / \| /)
      read_example(column[1])
      head = "| " column[2] " |"
      rule = "|---|"
      for (j = 3; j <= count; ++j) {
        if (!(before(column[j]) in known)) fail("the page of " column[1] " has no figure \"" before(column[j]) "\"")
        head = head " " behind(column[j]) " |"
        rule = rule "---:|"
      }
      print head; print rule
      for (i in renamed) if (!(i in seen)) fail("the page of " column[1] " has no variant \"" i "\"")
      for (i = 1; i <= variants; ++i) {
        row = "| " (variant[i] in renamed ? renamed[variant[i]] : variant[i]) " |"
        any = 0
        for (j = 3; j <= count; ++j) {
          found = (before(column[j]), variant[i]) in value
          row = row " " (found ? value[before(column[j]), variant[i]] : "–") " |"
          any += found
        }
        if (any) print row
      }
      delete renamed
    }
    /^<!-- end table -->$/ { inside_table = 0 }
    !inside_table
    /^<!-- rows .* -->$/ {
      pairs = split(content($0, "rows"), pair, / \| /)
      for (p = 1; p <= pairs; ++p) renamed[before(pair[p])] = behind(pair[p])
    }
    /^<!-- table .* -->$/ {
      write_table(content($0, "table"))
      inside_table = 1
    }
    END {
      if (inside_table) fail("a table has no line <!-- end table -->")
      exit failed
    }' "$page" >"$page.partial" || { rm -f "$page.partial"; exit 1; }
  mv "$page.partial" "$page"
done
