# fovea_order_functions(TARGET FILE)
# puts the sections of functions that FILE names, a line each, side by side at the beginning of the program's code. Linux maps 64 KiB
# around each page of code that runs: docs/decisions/0053. Linkers that do not know INSERT leave the order as it was.
include(CheckLinkerFlag)
function(fovea_order_functions target file)
  file(STRINGS ${file} names)
  list(TRANSFORM names REPLACE "(.+)" "    *(\\1)\n")
  string(CONCAT sections ${names})
  set(script ${PROJECT_BINARY_DIR}/${target}-functions.ld)
  file(CONFIGURE OUTPUT ${script} CONTENT "SECTIONS {\n  .text_first : {\n@sections@  }\n}\nINSERT BEFORE .text;\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  unset(FOVEA_LINKER_INSERTS CACHE)  # a build folder may get another linker
  check_linker_flag(CXX "-Wl,-T,${script}" FOVEA_LINKER_INSERTS)
  if(FOVEA_LINKER_INSERTS)
    target_link_options(${target} PRIVATE "-Wl,-T,${script}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  endif()
endfunction()
