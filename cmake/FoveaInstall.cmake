# cmake --install: three export sets, so that a program that needs the engine alone finds it without
# SentencePiece on the machine, and one that draws no pictures without Cairo and Pango. `--component attention` installs
# the engine alone.
include(CMakePackageConfigHelpers)
set(FOVEA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Fovea)

set(engine_targets fovea_core fovea_attention fovea_recurrence fovea_cache fovea_kernels fovea_plan fovea_mechanisms fovea_engine)
set(engine_headers core attention recurrence cache plan mechanisms)
install(TARGETS ${engine_targets} EXPORT FoveaAttentionTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT attention)
install(FILES include/fovea/attention.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fovea COMPONENT attention)
install(EXPORT FoveaAttentionTargets NAMESPACE fovea:: DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT attention)
foreach(library IN LISTS engine_headers)
  install(DIRECTORY include/fovea/${library} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fovea COMPONENT attention
          FILES_MATCHING PATTERN "*.h")
endforeach()

configure_package_config_file(cmake/FoveaConfig.cmake.in ${PROJECT_BINARY_DIR}/FoveaConfig.cmake
                              INSTALL_DESTINATION ${FOVEA_PACKAGE_DIR})
# Before 1.0 the interface may change with the minor version.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/FoveaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/FoveaConfig.cmake ${PROJECT_BINARY_DIR}/FoveaConfigVersion.cmake
        DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT attention)

if(FOVEA_NN)
  set(nn_directories files autograd nn models text train inspect)
  list(TRANSFORM nn_directories PREPEND fovea_ OUTPUT_VARIABLE nn_targets)
  install(TARGETS ${nn_targets} fovea_all EXPORT FoveaNnTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT nn)
  install(EXPORT FoveaNnTargets NAMESPACE fovea:: DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT nn)
  foreach(library IN LISTS nn_directories)
    install(DIRECTORY include/fovea/${library} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fovea COMPONENT nn
            FILES_MATCHING PATTERN "*.h")
  endforeach()
  install(FILES cmake/FindPcre2.cmake cmake/FindSentencePiece.cmake cmake/FindUtf8proc.cmake
    cmake/FoveaFindLibrary.cmake
          DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT nn)
  if(FOVEA_PICTURES)
    install(TARGETS fovea_pictures EXPORT FoveaPicturesTargets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT pictures)
    install(EXPORT FoveaPicturesTargets NAMESPACE fovea:: DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT pictures)
    install(DIRECTORY include/fovea/pictures DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fovea COMPONENT pictures
            FILES_MATCHING PATTERN "*.h")
    install(FILES cmake/FindPangoCairo.cmake DESTINATION ${FOVEA_PACKAGE_DIR} COMPONENT pictures)
  endif()
  if(TARGET fovea)
    install(TARGETS fovea RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
    install(TARGETS fovea_drawing LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fovea COMPONENT command)
  endif()
endif()
