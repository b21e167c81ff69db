#include "fovea/attention/precision.h"

#include <string>

#include "fovea/core/error.h"

namespace fovea {

Precision parse_precision(std::string_view text) {
  for (const Precision precision : {Precision::full, Precision::higher, Precision::high, Precision::medium}) {
    if (text == to_string(precision)) return precision;
  }
  throw InvalidArgument("parse_precision", "text", "full, higher, high or medium", std::string(text));
}

}  // namespace fovea
