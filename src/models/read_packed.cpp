#include "models/read_packed.h"

#include <algorithm>
#include <memory>

#include "core/excerpt.h"
#include "core/memory.h"
#include "fovea/autograd/packed.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::models {

void reserve_packed(const nn::ParameterSet& parameters, autograd::WeightType type) {
  std::size_t bytes = 0, beside = 0;
  for (const nn::Parameter& parameter : parameters.all()) {
    const Shape& shape = parameter.value.shape();
    if (!parameter.multiplies_rows) continue;
    bytes += static_cast<std::size_t>(autograd::PackedMatrix::bytes_of(shape[0], shape[1], type));
    beside =
        std::max(beside, static_cast<std::size_t>(autograd::PackedMatrix::packing_bytes(shape[1], type)));
  }
  reserve_elements(bytes + beside * static_cast<std::size_t>(default_executor().thread_count()));
}

void read_packed(const StoredParameter& stored, autograd::WeightType type, nn::Parameter& parameter) {
  const files::StoredTensor& tensor = *stored.tensor;
  if (parameter.multiplies_rows) {
    try {
      parameter.packed = std::make_shared<const autograd::PackedMatrix>(stored.shape[0], stored.shape[1],
                                                                        type, stored.copy_rows);
    } catch (const InvalidArgument& error) {
      throw FileError(
          tensor.file, -1,
          "tensor '" + excerpt(tensor.name) + "': expected " + error.expected() + ", got " + error.got());
    }
  }
  // Small tensors share pages and groups of pages with others, and each call costs a microsecond or more. So
  // does each row of a table that is read from the file: the two rows of BERT's types, read for each id, took
  // 1 % of a batch of MiniLM in bf16.
  constexpr std::size_t worth_it = std::size_t{256} << 10;
  const bool is_large = tensor.bytes.size() >= worth_it;
  if (stored.first_row >= 0 && (parameter.multiplies_rows || (parameter.gives_rows && is_large))) {
    // Not from the mapping: there a row brings up to 2 MB of the file into memory, as Linux 6.18 does.
    parameter.rows = std::make_shared<const autograd::TableRows>(
        [tensor, first = stored.first_row, width = stored.shape[1]](std::int64_t row, float* to) {
          tensor.read_to(to, (first + row) * width, width);
        });
  } else if (!parameter.multiplies_rows) {
    parameter.value = Tensor(DType::f32, stored.shape);
    stored.copy(parameter.value.data<float>());
  }
  if (is_large && (!parameter.gives_rows || parameter.multiplies_rows))
    tensor.release(0, tensor.shape.count());
}

void check_not_read_packed(const nn::ParameterSet& parameters) {
  for (const nn::Parameter& parameter : parameters.all()) {
    if (parameter.value.empty())
      throw InvalidArgument("save_model", "parameters", "a model that was not read packed",
                            parameter.name + " without values");
  }
}

}  // namespace fovea::models
