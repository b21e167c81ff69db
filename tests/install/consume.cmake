# Builds a program outside the tree against an installed Fovea and compares what it prints.
#   cmake -D FROM=installed|engine -D PICTURES=ON|OFF -D SOURCE=... -D BUILD=... -D WORK=... -D CXX=... -P consume.cmake
# FROM=installed installs the build tree that runs the tests and uses every component; PICTURES says whether the tree has
# the component pictures.
# FROM=engine configures and builds fovea::attention alone first, and uses only that.
cmake_minimum_required(VERSION 3.25)

function(step description)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${description} failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Builds the program in `folder` against the prefix and sets `output` to what it prints.
function(build_and_run folder name)
  set(build "${WORK}/${name}")
  step("configuring ${name}" ${CMAKE_COMMAND} -S "${folder}" -B "${build}" -G Ninja -D CMAKE_BUILD_TYPE=Release
       "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -D CMAKE_CXX_COMPILER=${CXX}
       -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${ARGN})
  step("building ${name}" ${CMAKE_COMMAND} --build "${build}")
  step("running ${name}" "${build}/${name}" WORKING_DIRECTORY "${WORK}")
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(run_attend)
  build_and_run("${SOURCE}/examples/attend" attend ${ARGN})
  message(STATUS "attend printed:\n${output}")
  # The window of two earlier tokens: query i sees positions max(0, i - 2) ... i, and prints their mean.
  if(NOT output MATCHES "\n0 0\\.5 1 2 3 4\n$")
    message(FATAL_ERROR "expected the last line '0 0.5 1 2 3 4'")
  endif()
endfunction()

# The README's first program.
function(run_first)
  build_and_run("${SOURCE}/examples/first" first ${ARGN})
  if(NOT output STREQUAL "[1, 8, 512, 64]\n")
    message(FATAL_ERROR "examples/first printed '${output}', not the shape of its output")
  endif()
endfunction()

# A mod compiled outside the library, at -O2, and trained; a predicate; a printed schedule.
function(run_algebra)
  build_and_run("${SOURCE}/examples/algebra" algebra -D CMAKE_CXX_FLAGS_RELEASE=-O2)
  message(STATUS "algebra printed:\n${output}")
  if(NOT output MATCHES "learned a decay of 1\\.(49|50)[0-9]\nmeans of neighbours: 0\\.50 1\\.75 2\\.00 3\\.00 2\\.67\ntiles of 48")
    message(FATAL_ERROR "examples/algebra printed something else than docs/algebra.md says")
  endif()
endfunction()

# A block of the tour as its first page says to run one; the blocks themselves are the test documents.tour.
function(run_tour)
  build_and_run("${SOURCE}/examples/tour" tour)
  if(NOT output MATCHES "weights *0\\.468 +0\\.063 +0\\.468\ncontext *0\\.937 +0\\.532\n$")
    message(FATAL_ERROR "examples/tour printed something else than docs/tour/2-looking-back.md says:\n${output}")
  endif()
endfunction()

# The program of docs/models.md, which names a folder that is not there.
function(run_write)
  step("configuring write" ${CMAKE_COMMAND} -S "${SOURCE}/examples/write" -B "${WORK}/write" -G Ninja
       -D CMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -D CMAKE_CXX_COMPILER=${CXX}
       -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
  step("building write" ${CMAKE_COMMAND} --build "${WORK}/write")
  execute_process(COMMAND "${WORK}/write/write" nomodel "The license" RESULT_VARIABLE result
                  OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT result EQUAL 1 OR NOT said MATCHES "nomodel: there is no such folder")
    message(FATAL_ERROR "examples/write should name the folder:\n${said}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
if(FROM STREQUAL "engine")
  step("configuring the engine" ${CMAKE_COMMAND} -S "${SOURCE}" -B "${WORK}/engine" -G Ninja
       -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${CXX} -D FOVEA_NN=OFF -D FOVEA_TESTS=OFF
       -D CMAKE_DISABLE_FIND_PACKAGE_SentencePiece=ON -D CMAKE_DISABLE_FIND_PACKAGE_PangoCairo=ON
       -D CMAKE_DISABLE_FIND_PACKAGE_Pcre2=ON -D CMAKE_DISABLE_FIND_PACKAGE_Utf8proc=ON)
  step("building the engine" ${CMAKE_COMMAND} --build "${WORK}/engine")
  step("installing the engine" ${CMAKE_COMMAND} --install "${WORK}/engine" --prefix "${WORK}/prefix")
  run_attend()
  execute_process(COMMAND ldd "${WORK}/attend/attend" OUTPUT_VARIABLE libraries)
  if(libraries MATCHES "dnnl|sentencepiece|pcre2|utf8proc|gomp|libpng|cairo|pango")
    message(FATAL_ERROR "the engine alone pulls in a library of the layers:\n${libraries}")
  endif()
  # A component that is not there is refused by name, not found broken later.
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE}/tests/install/layers" -B "${WORK}/layers" -G Ninja
                          "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -D CMAKE_CXX_COMPILER=${CXX}
                  RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(result EQUAL 0 OR NOT said MATCHES "component 'nn' is not installed")
    message(FATAL_ERROR "find_package(Fovea COMPONENTS nn) should say that nn is not installed:\n${said}")
  endif()
else()
  step("installing" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
  run_attend()
  run_first()
  run_algebra()
  run_tour()
  run_write()
  # The layers find and link neither Cairo nor Pango.
  build_and_run("${SOURCE}/tests/install/layers" layers -D CMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON
                -D CMAKE_DISABLE_FIND_PACKAGE_PangoCairo=ON)
  execute_process(COMMAND ldd "${WORK}/layers/layers" OUTPUT_VARIABLE libraries)
  if(libraries MATCHES "cairo|pango|libpng")
    message(FATAL_ERROR "the layers pull in a library of the pictures:\n${libraries}")
  endif()
  if(PICTURES)
    # The installed command finds the module that draws, whose first word is about the name of the picture.
    execute_process(COMMAND "${WORK}/prefix/bin/fovea" inspect --model nothing --source a --picture a.odd
                    RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(result EQUAL 0 OR NOT said MATCHES "\\.png")
      message(FATAL_ERROR "the installed command should know the endings of pictures:\n${said}")
    endif()
    build_and_run("${SOURCE}/tests/install/pictures" pictures)
    message(STATUS "pictures printed:\n${output}")
    if(NOT output STREQUAL "pictures: png svg pdf\n")
      message(FATAL_ERROR "expected 'pictures: png svg pdf'")
    endif()
    # The program of docs/pictures.md, which writes sat.pdf into its working directory.
    build_and_run("${SOURCE}/examples/draw" draw)
    if(NOT EXISTS "${WORK}/sat.pdf" OR NOT output STREQUAL "")
      message(FATAL_ERROR "examples/draw wrote no sat.pdf, or printed: ${output}")
    endif()
  else()
    execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE}/tests/install/pictures" -B "${WORK}/pictures" -G Ninja
                    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -D CMAKE_CXX_COMPILER=${CXX}
                    RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(result EQUAL 0 OR NOT said MATCHES "component 'pictures' is not installed")
      message(FATAL_ERROR "find_package(Fovea COMPONENTS pictures) should say that it is not installed:\n${said}")
    endif()
  endif()
  # The package must not lean on the tree it was built from.
  file(GLOB_RECURSE package_files "${WORK}/prefix/*.cmake")
  foreach(file IN LISTS package_files)
    file(READ "${file}" text)
    string(FIND "${text}" "${SOURCE}/" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names the source tree")
    endif()
  endforeach()
endif()
file(REMOVE_RECURSE "${WORK}")
