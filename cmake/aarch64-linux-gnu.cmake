# Debian's cross-compiler for 64-bit Arm, and qemu's user emulation to run what it makes (`./run arm`). FOVEA_ARM64_LIBRARIES
# is a folder into which Debian's arm64 packages were unpacked; without it they are looked for where multiarch installs them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# The compiler is asked about itself in a project of its own, which must find the same.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FOVEA_ARM64_LIBRARIES)

# Where libc6-arm64-cross, a dependency of the compiler, lies: the loader and the C library of what runs.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH ${FOVEA_ARM64_LIBRARIES} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
if(FOVEA_ARM64_LIBRARIES)
  # Only there: /usr holds the packages of the machine that compiles.
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
endif()
