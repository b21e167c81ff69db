# Finds Cairo (with its PNG, SVG and PDF surfaces) and Pango by pkg-config, and defines PangoCairo::PangoCairo. Neither
# ships a CMake package.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_PangoCairo QUIET IMPORTED_TARGET pangocairo cairo-png cairo-svg cairo-pdf)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PangoCairo REQUIRED_VARS PC_PangoCairo_LINK_LIBRARIES
  REASON_FAILURE_MESSAGE "needs pkg-config, Cairo and Pango (Debian: pkg-config libcairo2-dev libpango1.0-dev)")

if(PangoCairo_FOUND AND NOT TARGET PangoCairo::PangoCairo)
  add_library(PangoCairo::PangoCairo INTERFACE IMPORTED)
  target_link_libraries(PangoCairo::PangoCairo INTERFACE PkgConfig::PC_PangoCairo)
endif()
