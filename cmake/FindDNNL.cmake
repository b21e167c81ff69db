# Finds oneDNN and defines DNNL::DNNL. Debian's own dnnl-config.cmake asks for OpenCL headers that a CPU does not need.
include(${CMAKE_CURRENT_LIST_DIR}/FoveaFindLibrary.cmake)
fovea_find_library(DNNL oneapi/dnnl/dnnl.h dnnl)
