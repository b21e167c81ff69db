#include "cli/drawing.h"

#include <dlfcn.h>

#include <filesystem>

#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

constexpr const char* kName = "fovea-drawing.so";

const Drawing& load() {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path beside = here / kName,
                              installed = (here / FOVEA_DRAWING_FOLDER / kName).lexically_normal();
  std::error_code error;
  const bool is_beside = std::filesystem::exists(beside, error);
  if (!is_beside && !std::filesystem::exists(installed, error))
    throw FileError(beside.string(), -1,
                    "is not there, and neither is " + installed.string() +
                        "; the command loads one of them to draw pictures");
  const std::filesystem::path& path = is_beside ? beside : installed;
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) throw FileError(path.string(), -1, std::string("cannot be loaded: ") + ::dlerror());
  using Get = const Drawing* (*)();
  const Get get = reinterpret_cast<Get>(::dlsym(module, "fovea_drawing"));
  if (get == nullptr) throw FileError(path.string(), -1, "is no module of fovea that draws");
  const Drawing* const functions = get();
  if (std::string_view(functions->version) != FOVEA_VERSION)
    throw FileError(
        path.string(), -1,
        std::string("is of version ") + functions->version + ", and the command of " + FOVEA_VERSION);
  return *functions;
}

}  // namespace

const Drawing& drawing() {
  static const Drawing& functions = load();  // for the whole process: Pango cannot be unloaded
  return functions;
}

}  // namespace fovea::cli
