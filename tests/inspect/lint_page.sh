#!/usr/bin/env bash
# Checks the page's script, style and document with linters that Debian has (eslint, tidy), and checks that every class
# has a rule and every rule a class. Linters that are not installed are named; if none is installed, the exit status is 77.
set -uo pipefail
page=$(dirname "$(readlink -f "$0")")/../../src/inspect/page
sources=$(dirname "$page")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 ran=0

# The four files are one script in the page, so a name of one file is used in another.
joined=$work/page.js
{ echo "'use strict';" && cat "$page"/{matrices,graph,viewer,input}.js; } >"$joined"
lengths=$(awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 characters" }' "$page"/*.js)
[[ -z $lengths ]] || { echo "$lengths"; failed=1; }

if command -v eslint >/dev/null && NODE_PATH=/usr/share/nodejs eslint --version >/dev/null 2>&1; then
  ran=1
  NODE_PATH=/usr/share/nodejs eslint --no-eslintrc --no-ignore --env browser,es6 --parser-options=ecmaVersion:2019 \
    --report-unused-disable-directives --max-warnings 0 --format unix --rule '{
      "no-undef": 2, "no-unused-vars": 2, "no-redeclare": 2, "no-shadow": 2, "no-var": 2, "prefer-const": 2, "eqeqeq": 2,
      "semi": 2, "no-eval": 2, "no-implied-eval": 2, "no-new-func": 2, "no-script-url": 2, "no-unreachable": 2,
      "no-dupe-keys": 2, "no-dupe-class-members": 2, "no-const-assign": 2, "no-self-compare": 2, "no-fallthrough": 2,
      "use-isnan": 2, "valid-typeof": 2, "no-loss-of-precision": 0, "no-return-assign": 2, "no-throw-literal": 2,
      "no-restricted-properties": [2, {"property": "innerHTML"}, {"property": "outerHTML"},
        {"property": "insertAdjacentHTML"}, {"property": "write", "object": "document"}]}' "$joined" || failed=1
else
  echo "not run: eslint (Debian: eslint)"
  if command -v node >/dev/null; then
    ran=1
    node --check "$joined" || failed=1
  fi
fi

if command -v tidy >/dev/null; then
  ran=1
  # The placeholders are filled as the program fills them.
  sed 's/ nonce="{{nonce}}"//; s/{{nonce}}/0/g; s/{{title}}/t/g; s/{{data}}/{}/; s/{{style}}/p { margin: 0 }/; s/{{script}}//; s/{{body}}/<p>b<\/p>/' \
    "$page/page.html" >"$work/page.html"
  tidy -q -e --show-info no "$work/page.html" || failed=1
else
  echo "not run: tidy (Debian: tidy)"
fi

# Braces must close, and no name may be used on one side only.
python3 - "$page" "$sources" <<'END' || failed=1
import pathlib, re, sys

page, sources = map(pathlib.Path, sys.argv[1:])
style = re.sub(r"/\*.*?\*/", "", (page / "style.css").read_text(), flags=re.S)
users = "".join(p.read_text() for p in [*page.glob("*.js"), *page.glob("*.html"), *sources.glob("*.cpp")])
wrong = []
if style.count("{") != style.count("}"):
    wrong.append("style.css: a brace is not closed")
for body in re.findall(r"\{([^{}]*)\}", style):
    for declaration in filter(None, (d.strip() for d in body.split(";"))):
        if not re.fullmatch(r"(--[a-z0-9-]+|-?[a-z-]+)\s*:\s*[^:]+", declaration, flags=re.S):
            wrong.append(f"style.css: no declaration: {declaration!r}")
selectors = " ".join(re.findall(r"([^{};]+)\{", style))
ruled = set(re.findall(r"\.([a-z][a-z0-9-]*)", selectors))
generated = {f"{use}{i}" for use in "cf" for i in range(12)} | {"c-line", "c-quiet", "f-quiet"}  # by svg.cpp
for name in sorted(ruled - generated):
    if not re.search(rf"""(class(Name)?[=:]\s*\\?["'][^"']*|kind[^\n]*)\b{name}\b|["' ]{name}["' ]|\\"{name}\\"|class=\\"{name}""", users):
        wrong.append(f"style.css: nothing has the class {name}")
for name in sorted(set(re.findall(r"className: '([a-z-]+)'", users)) - ruled):
    wrong.append(f"no rule for the class {name}")
variables = set(re.findall(r"(--[a-z0-9-]+):", style))
for name in sorted(set(re.findall(r"var\((--[a-z0-9-]+)\)", style)) | set(re.findall(r"css\('(--[a-z0-9-]+)'\)", users))):
    if name not in variables:
        wrong.append(f"no variable {name}")
print("\n".join(wrong), end="\n" if wrong else "")
sys.exit(bool(wrong))
END
((failed)) && exit 1
((ran)) || exit 77
echo "the page is as the linters ask"
