# Headers of the standard library, and of GoogleTest, are read from a precompiled form: parsing them took a third of a
# build. Headers of the project are not among them, so a change of one rebuilds what includes it and nothing else.
#
# It is off, and results of such a build do not count: GCC takes -ffp-contract=off of single files from the precompiled
# header, which was made without it, and EveryCase.HugeScoresStillSumToOne fails. Those files would have to be left out.
# A file that forgets an #include would compile all the same, too.
option(FOVEA_PRECOMPILE "Precompile the headers of the standard library and of GoogleTest" OFF)

set(FOVEA_WARNINGS -Wall -Wextra -Wpedantic)
set(FOVEA_STANDARD_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <cmath> <cstddef> <cstdint> <cstdio> <cstring>
  <filesystem> <fstream> <functional> <iterator> <limits> <map> <memory> <mutex> <numeric> <optional> <span> <sstream>
  <string> <string_view> <thread> <tuple> <type_traits> <utility> <variant> <vector>)

# fovea_precompiled_headers(NAME TYPE HEADERS...): GCC accepts a precompiled header only with the position independence that it was
# made with, so libraries, programs and tests have one each.
function(fovea_precompiled_headers name type)
  if(NOT FOVEA_PRECOMPILE)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  if(type STREQUAL "PROGRAM")
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    add_executable(${name} ${source})
  else()
    file(CONFIGURE OUTPUT ${source} CONTENT "// Only the precompiled headers are wanted.\n")
    add_library(${name} OBJECT ${source})
  endif()
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE ${FOVEA_WARNINGS})
  if(FOVEA_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${FOVEA_SANITIZE} -fno-sanitize-recover=all -g)
  endif()
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# fovea_use_precompiled(TARGET NAME DEPENDENCIES...): not for a target that depends on OpenMP (-fopenmp) or Pango (-pthread),
# because GCC refuses headers that were precompiled without these flags.
function(fovea_use_precompiled target name)
  if(FOVEA_PRECOMPILE AND NOT "${ARGN}" MATCHES "OpenMP::|PangoCairo::")
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
