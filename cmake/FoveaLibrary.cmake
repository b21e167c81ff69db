# fovea_library(NAME LINK public-dependencies... PRIVATE private-dependencies...)
# makes the static library fovea_NAME from src/NAME/**.cpp. Public headers are include/fovea/NAME, private ones stand
# beside the sources and are included as "NAME/file.h".
function(fovea_library name)
  cmake_parse_arguments(ARG "" "" "LINK;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  if(sources)
    add_library(fovea_${name} STATIC ${sources})
    fovea_in_groups(fovea_${name})
    set(scope PUBLIC)
    target_include_directories(fovea_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(fovea_${name} PRIVATE -Wall -Wextra -Wpedantic)
    target_link_libraries(fovea_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  else()
    add_library(fovea_${name} INTERFACE)
    set(scope INTERFACE)
    target_link_libraries(fovea_${name} INTERFACE ${ARG_LINK})
  endif()
  target_include_directories(fovea_${name} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(fovea_${name} ${scope} cxx_std_20)
  if(FOVEA_SANITIZE)
    target_compile_options(fovea_${name} ${scope} -fsanitize=${FOVEA_SANITIZE} -fno-sanitize-recover=all -g)
    target_link_options(fovea_${name} ${scope} -fsanitize=${FOVEA_SANITIZE})
  endif()
  set_target_properties(fovea_${name} PROPERTIES EXPORT_NAME library_${name})
endfunction()

# Compiles the sources of a target in groups of four, so that a group parses the headers of the standard library, of
# JSON and of Fovea once. Files with options of their own, and those that compile their code once an instruction set,
# stay alone.
function(fovea_in_groups target)
  if(FOVEA_GROUPED)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
endfunction()
