# Finds libpcre2's library for 8-bit characters and defines Pcre2::Pcre2 (Debian's package has no CMake package).
include(${CMAKE_CURRENT_LIST_DIR}/FoveaFindLibrary.cmake)
fovea_find_library(Pcre2 pcre2.h pcre2-8)
