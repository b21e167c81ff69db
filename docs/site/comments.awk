# For Doxygen: what looks like a tag of HTML in a comment, `<pad>` or `</s>`, is text. Code stands as it is, in the line
# before the comment and between backticks.
{
  at = index($0, "//")
  if (!at) { print; next }
  line = substr($0, 1, at - 1)
  n = split(substr($0, at), pieces, "`")
  for (i = 1; i <= n; ++i) {
    piece = pieces[i]
    if (i % 2) {
      while (match(piece, /<\/?[a-z]+>/))
        piece = substr(piece, 1, RSTART - 1) "\\<" substr(piece, RSTART + 1, RLENGTH - 2) "\\>" substr(piece, RSTART + RLENGTH)
    }
    line = line (i > 1 ? "`" : "") piece
  }
  print line
}
