# The page's document, style and script become constants of the inspect library at build time.
set(page ${PROJECT_SOURCE_DIR}/src/inspect/page)
set(embedded ${PROJECT_BINARY_DIR}/embedded/inspect_page.cpp)
set(texts kPageDocument=${page}/page.html kPageStyle=${page}/style.css kScriptMatrices=${page}/matrices.js
    kScriptGraph=${page}/graph.js kScriptViewer=${page}/viewer.js kScriptInput=${page}/input.js)
list(TRANSFORM texts REPLACE "^[^=]+=" "" OUTPUT_VARIABLE files)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUTPUT=${embedded} -D HEADER=inspect/page.h -D NAMESPACE=fovea::inspect
          "-DTEXTS=${texts}" -P ${PROJECT_SOURCE_DIR}/cmake/EmbedTexts.cmake
  DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/EmbedTexts.cmake
  COMMENT "Embedding the page" VERBATIM)
target_sources(fovea_inspect PRIVATE ${embedded})
