#!/usr/bin/env bash
# The documents against the tree: `documents.sh ROOT`. Every file of the tree that a document names exists, and the C++
# programs in the READMEs, docs/models.md and docs/pictures.md are those of examples/first, examples/attend,
# examples/write and examples/draw, which tests/install builds and runs.
set -euo pipefail
cd "$1"
breaches=0
breach() {
  echo "$1"
  breaches=$((breaches + 1))
}

documents=(README.md README.zh.md CONTRIBUTING.md CHANGELOG.md docs/*.md docs/decisions/*.md docs/tour/*.md docs/zh/*.md docs/zh/tour/*.md)
# The pages of the gallery: those that its own page links.
mapfile -t pages < <(grep -oE '\]\(\.\./examples/[a-z]+/README\.md\)' docs/gallery.md | sed 's/^](\.\.\///; s/)$//')
documents+=("${pages[@]}")
for document in "${documents[@]}"; do
  [[ -f $document ]] || { breach "$document: missing"; continue; }
  folder=$(dirname "$document")
  # [text](path), relative to the document; a lambda in a block of code is no link.
  while read -r path; do
    [[ $path == http* || $path == mailto:* || -z $path ]] || [[ -e $folder/$path ]] ||
      breach "$document: link to $path, which is not there"
  done < <(awk '/^```/ { code = !code; next } !code' "$document" | grep -oE '\]\([^)#]+' | sed 's/^](//' || true)
  # `path/in/the/tree`, from the root; with * or <...> it is a pattern, not a file.
  while read -r path; do
    [[ -e $path ]] || breach "$document: names $path, which is not there"
  done < <(grep -oE '`(include|src|tests|examples|docs|cmake|experiments|bench)/[A-Za-z0-9_./-]*`' "$document" |
    tr -d '`' | sort -u || true)
done

# Text that was to be filled in.
while read -r line; do
  breach "a placeholder: $line"
done < <(grep -rnE 'to be filled|待填|\bTODO\b' docs README.md README.zh.md --include='*.md' || true)
while read -r line; do
  breach "docs/results.md: a placeholder: $line"
done < <(grep -nE '^[A-Z][A-Z0-9_]{3,}$|\b[A-Z0-9]+_[A-Z_]+\b|\bTODO\b' docs/results.md | grep -v FOVEA_ || true)

# `block KIND N FILE`: the N-th block of code of that kind.
block() { awk -v fence="\`\`\`$1" -v wanted="$2" '$0 == "```" { on = 0 } on; $0 == fence && ++n == wanted { on = 1 }' "$3"; }
for readme in README.md README.zh.md; do
  [[ -f $readme ]] || continue
  diff <(block cpp 1 "$readme") examples/first/main.cpp >/dev/null ||
    breach "$readme: its first C++ program is not examples/first/main.cpp"
  diff <(block cpp 2 "$readme") examples/attend/main.cpp >/dev/null ||
    breach "$readme: its second C++ program is not examples/attend/main.cpp"
done
# Every block and every picture of a page, without comments, which are in the page's own language.
shown() {
  awk '/^```/ { print; code = !code; next } code' "$1" | sed -E 's/ *# .*//'
  grep -oE '(src|srcset)="[^"]*"|!\[[^]]*\]\([^)]*\)' "$1" | sed -E 's/!\[[^]]*\]//; s/\.\.\///g; s/docs\/pictures/pictures/' | sort || true
}
for page in README docs/pictures docs/ported-layer; do
  chinese=docs/zh/${page#docs/}.md
  [[ $page != README ]] || chinese=README.zh.md
  diff <(shown "$page.md") <(shown "$chinese") >&2 ||
    breach "$chinese: its blocks of code or its pictures are not those of $page.md"
done

diff <(block cpp 1 docs/models.md) examples/write/main.cpp >/dev/null ||
  breach "docs/models.md: its program is not examples/write/main.cpp"
for page in docs/pictures.md docs/zh/pictures.md; do
  diff <(block cpp 1 "$page") examples/draw/main.cpp >/dev/null || breach "$page: its program is not examples/draw/main.cpp"
done
# The numbers of each row of a page's tables, in ascending order: the words around them may stand in another order.
numbers() {
  grep '^|' "$1" | sed -E 's/\]\([^)]*\)/]/g; s/[^0-9.,]+/ /g; s/[.,]+( |$)/ /g' |
    while read -r row; do tr -s ' ' '\n' <<<"$row" | sort | tr '\n' ' '; echo; done
}
for page in README docs/pictures docs/ported-layer; do
  chinese=docs/zh/${page#docs/}.md
  [[ $page != README ]] || chinese=README.zh.md
  diff <(numbers "$page.md") <(numbers "$chinese") >&2 || breach "$chinese: its tables do not have the numbers of $page.md"
done

diff <(sed -n '/^\/\/ Three parts/,/^```$/p' docs/algebra.md | sed '$d') examples/algebra/main.cpp >/dev/null ||
  breach "docs/algebra.md: its program is not examples/algebra/main.cpp"

# A picture of the gallery that keeps its drawing is shown in both themes.
for kept in examples/*/picture.json; do
  [[ -e $kept ]] || continue
  folder=${kept%/*}
  for theme in light dark; do
    [[ -f $folder/picture-$theme.png ]] || breach "$folder: no picture-$theme.png, which ./run gallery --redraw draws"
    grep -q "=\"picture-$theme.png\"" "$folder/README.md" || breach "$folder/README.md: does not show picture-$theme.png"
  done
done

# The gallery: what its page says the examples promise, in either language, is what their pages say.
collected=$(mktemp -d)
mkdir "$collected/zh"
for page in gallery.md zh/gallery.md; do
  cp "docs/$page" "$collected/$page"
  bash examples/gallery/collect.sh "$collected/$page"
  diff "docs/$page" "$collected/$page" || breach "docs/$page: not what examples/gallery/collect.sh makes of the pages"
done
rm -rf "$collected"
# Both name the same examples, in the same order.
named() { grep -oE '^\| \[[a-z]+\]' "$1"; }
diff <(named docs/gallery.md) <(named docs/zh/gallery.md) || breach "docs/zh/gallery.md: its examples are not those of docs/gallery.md"
# Tables of figures on other pages are what the examples' pages say.
made=$(mktemp)
for page in $(grep -l '^<!-- table ' examples/*/README.md docs/tour/*.md docs/zh/tour/*.md); do
  cp "$page" "$made"
  bash examples/gallery/tables.sh "$made"
  diff "$page" "$made" || breach "$page: a table is not what examples/gallery/tables.sh makes of the examples' figures"
done
rm -f "$made"

if ((breaches)); then
  echo "$breaches breach(es)"
  exit 1
fi
echo "the documents name what is there"
