# Writes a C++ source whose constants are the texts of files, so that a page's script and style are files that editors and
# linters know, and the library still is one archive.
#   cmake -D OUTPUT=file.cpp -D HEADER=inspect/page.h -D NAMESPACE=fovea::inspect -D "TEXTS=kName=path;..." -P EmbedTexts.cmake
set(source "// Made by cmake/EmbedTexts.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
foreach(text IN LISTS TEXTS)
  string(REGEX MATCH "^([^=]+)=(.*)$" match "${text}")
  set(name ${CMAKE_MATCH_1})
  set(path "${CMAKE_MATCH_2}")
  file(READ "${path}" content HEX)
  string(LENGTH "${content}" digits)
  math(EXPR bytes "${digits} / 2")
  # Bytes, not a raw string: no text can end them, and no limit of a compiler on a literal's length is met.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," content "${content}")
  string(REPEAT "." 98 line)  # 14 bytes
  string(REGEX REPLACE "(${line})" "\\1\n    " content "${content}")
  string(APPEND source "static constexpr char ${name}Bytes[] = {\n    ${content}'\\0'};\n"
         "const std::string_view ${name}(${name}Bytes, ${bytes});\n\n")
endforeach()
string(APPEND source "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${source}")
