#include "fovea/recurrence/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "core/check_size.h"

namespace fovea {
namespace {

constexpr const char* make_plan_name = "make_recurrence_plan";

[[noreturn]] void refuse(const char* argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument(make_plan_name, argument, expected, got);
}

void check_heads(const RecurrenceShape& shape) {
  if (shape.num_heads % shape.num_key_heads != 0)
    refuse("shape.num_key_heads", "a divisor of num_heads " + std::to_string(shape.num_heads),
           std::to_string(shape.num_key_heads));
  if (shape.num_heads % shape.num_query_heads != 0 && shape.num_query_heads % shape.num_heads != 0)
    refuse("shape.num_query_heads", "a divisor or a multiple of num_heads " + std::to_string(shape.num_heads),
           std::to_string(shape.num_query_heads));
}

// A workspace holds some operands and states. With 2^44 elements in each, their bytes fit into 63 bits.
void check_room(const RecurrenceShape& shape) {
  std::int64_t room = std::int64_t{1} << 44;
  const std::int64_t rows = std::max({shape.len, shape.key_dim, std::int64_t{1}});
  for (const std::int64_t size : {std::max<std::int64_t>(shape.batch, 1), shape.num_output_heads(), rows,
                                  std::max(shape.key_dim, shape.value_dim + 1)}) {
    if (size > room)
      refuse("shape", "operands and states of at most 2^44 elements",
             "a batch of " + std::to_string(shape.batch) + ", " + std::to_string(shape.num_output_heads()) +
                 " heads, " + std::to_string(shape.len) + " tokens, key_dim " +
                 std::to_string(shape.key_dim) + ", value_dim " + std::to_string(shape.value_dim));
    room /= size;
  }
}

void check_numbers(const RecurrenceSpec& spec) {
  if (spec.scale && !std::isfinite(*spec.scale))
    refuse("spec.scale", "a finite number", std::to_string(*spec.scale));
  if (const auto* sum = std::get_if<KeySum>(&spec.normalizer);
      sum && !(std::isfinite(sum->epsilon) && sum->epsilon >= 0))
    refuse("spec.normalizer", "an epsilon that is finite and at least 0", std::to_string(sum->epsilon));
}

}  // namespace

RecurrenceShape checked_shape(const RecurrenceSpec& spec, const RecurrenceShape& given) {
  RecurrenceShape shape = given;
  if (shape.value_dim == RecurrenceShape::as_key_dim) shape.value_dim = shape.key_dim;
  check_size(make_plan_name, "shape.batch", shape.batch, 0);
  check_size(make_plan_name, "shape.num_query_heads", shape.num_query_heads, 1);
  check_size(make_plan_name, "shape.num_key_heads", shape.num_key_heads, 1);
  check_size(make_plan_name, "shape.num_heads", shape.num_heads, 1);
  check_size(make_plan_name, "shape.len", shape.len, 0);
  check_size(make_plan_name, "shape.key_dim", shape.key_dim, 1);
  check_size(make_plan_name, "shape.value_dim", shape.value_dim, 1);
  check_heads(shape);
  check_room(shape);
  check_numbers(spec);
  return shape;
}

Shape state_shape(const RecurrenceSpec& spec, const RecurrenceShape& shape, std::int64_t batch) {
  const std::int64_t sums = std::holds_alternative<KeySum>(spec.normalizer) ? 1 : 0;
  return {batch, shape.num_heads, shape.key_dim, shape.value_dim + sums};
}

std::string to_string(const RecurrenceSpec& spec) {
  constexpr std::array decays{"no decay", "constant decay", "scalar decay", "key decay"};
  constexpr std::array writes{"additive write", "delta write", "diagonal-plus-low-rank write"};
  constexpr std::array reads{"read after write", "read before decay", "read with self-weight"};
  std::string text = std::holds_alternative<EluPlusOne>(spec.feature_map) ? "elu+1 features, " : "";
  text += std::string(decays[spec.decay.index()]) + ", " + writes[spec.write.index()] + ", " +
          reads[spec.read.index()];
  if (std::holds_alternative<KeySum>(spec.normalizer)) text += ", sum normaliser";
  return text;
}

}  // namespace fovea
