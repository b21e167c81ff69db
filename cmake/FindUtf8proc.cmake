# Finds libutf8proc and defines Utf8proc::Utf8proc (Debian's package has no CMake package).
include(${CMAKE_CURRENT_LIST_DIR}/FoveaFindLibrary.cmake)
fovea_find_library(Utf8proc utf8proc.h utf8proc)
