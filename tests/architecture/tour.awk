# The C++ blocks of the tour as one program, and what it must print:
#   awk -v program=tour.cpp -v expected=tour.txt -f tour.awk docs/tour/*.md
# A block is the body of a function of its own under examples/tour/tour.h. The next block of the page is ```text and
# holds what it prints. One program, because the headers would otherwise be compiled once a block.
function fail(message) {
  printf "%s:%d: %s\n", FILENAME, FNR, message > "/dev/stderr"
  failed = 1
  exit 1
}
function page(file) { sub(/.*\//, "", file); return file }
BEGIN {
  print "#include \"tour.h\"" > program
  printf "" > expected
}
FNR == 1 {
  if (waiting) fail("the C++ block before the end of the last page has no block of text with its output")
  kind = ""
}
kind == "" && /^```/ {
  kind = substr($0, 4)
  if (kind == "") fail("a block without a kind")
  if (kind == "cpp") {
    if (waiting) fail("the C++ block before has no block of text with its output")
    name = page(FILENAME) ":" FNR + 1
    names[++count] = name
    printf "\nstatic void block_%d() {\n#line %d \"%s\"\n", count, FNR + 1, FILENAME > program
  } else if (waiting && kind == "text") {
    printf "== %s\n", name > expected
  } else if (waiting) {
    fail("a block of " kind " between a C++ block and its output")
  }
  next
}
/^```$/ {
  if (kind == "cpp") {
    print "}" > program
    waiting = 1
  } else if (kind == "text") {
    waiting = 0
  }
  kind = ""
  next
}
kind == "cpp" { print > program }
kind == "text" && waiting { print > expected }
END {
  if (failed) exit 1
  if (waiting) fail("the last C++ block has no block of text with its output")
  if (!count) fail("no C++ block at all")
  print "\nint main() {" > program
  for (i = 1; i <= count; ++i) printf "  std::printf(\"== %s\\n\");\n  block_%d();\n", names[i], i > program
  print "}" > program
}
