#include "fovea/inspect/png.h"

#include <png.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "fovea/core/error.h"

namespace fovea::inspect {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

void write_png(const std::string& path, const Picture& picture) {
  std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) throw FileError(path, -1, std::string("cannot be written: ") + std::strerror(errno));
  // The simplified interface reports by a field; libpng's classic one jumps with longjmp over C++
  // destructors.
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  const int stride = 3 * picture.width;
  if (png_image_write_to_stdio(&image, file.get(), 0, picture.rgb.data(), stride, nullptr) == 0) {
    const std::string reason = image.message;
    png_image_free(&image);
    throw FileError(path, -1, "cannot be written: " + reason);
  }
  if (std::fclose(file.release()) != 0) {
    throw FileError(path, -1, std::string("cannot be written: ") + std::strerror(errno));
  }
}

void write_png(const std::string& path, const AlignmentMatrix& alignment) {
  write_png(path, draw_picture(alignment));
}

void write_png(const std::string& path, const InspectPage& page) {
  write_png(path, draw_picture(page));
}

}  // namespace fovea::inspect
