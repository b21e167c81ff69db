#include "models/short_output.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "fovea/core/executor.h"
#include "fovea/core/profile.h"

namespace fovea::models {
namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& got) {
  throw InvalidArgument("decode", "options.shortlist", expected, got);
}

}  // namespace

ShortOutputs::ShortOutputs(SequenceToSequence& model, const Shortlist& shortlist,
                           const std::vector<std::vector<std::int32_t>>& sources, std::int32_t end,
                           std::span<const std::int32_t> never)
    : outputs_(sources.size()) {
  static constexpr ProfileLabel label{"rows of a short-list", ProfilePart::search};
  const ProfileSpan span(label);
  if (shortlist.vocabulary() != model.vocabulary())
    refuse("one of the model's " + std::to_string(model.vocabulary()) + " pieces",
           "one of " + std::to_string(shortlist.vocabulary()));
  nn::Context inference;
  const autograd::Var weights = model.output_weight(inference);
  const Tensor weight = weights.value(), bias = model.output_bias(inference).value();
  if (weight.empty() && !weights.rows())
    refuse("none for a model whose output matrix is packed and has no rows of its own in the file",
           "a short-list");
  const std::int64_t dim = weight.size(1);
  const auto is_never = [&](std::int32_t id) { return std::ranges::find(never, id) != never.end(); };
  default_executor().parallel_for(std::ssize(sources), [&](std::int64_t sentence, int) {
    Output& output = outputs_[static_cast<std::size_t>(sentence)];
    output.ids = shortlist.candidates(sources[static_cast<std::size_t>(sentence)]);
    if (!std::ranges::binary_search(output.ids, end))
      output.ids.insert(std::ranges::lower_bound(output.ids, end), end);
    for (std::size_t n = 0; n < output.ids.size(); ++n) {
      if (is_never(output.ids[n])) output.never.push_back(static_cast<std::int32_t>(n));
    }
    if (output.never.size() == output.ids.size())
      refuse("candidates for each source", "none for source " + std::to_string(sentence));
  });
  // Rows in the file are read once for all sentences, which share many of them.
  std::vector<std::int32_t> in_file;
  for (const Output& output : outputs_) {
    if (weight.empty()) in_file.insert(in_file.end(), output.ids.begin(), output.ids.end());
  }
  std::ranges::sort(in_file);
  in_file.erase(std::ranges::unique(in_file).begin(), in_file.end());
  const Tensor read(DType::f32, {std::ssize(in_file), dim});
  default_executor().parallel_for(std::ssize(in_file), [&](std::int64_t n, int) {
    (*weights.rows())(in_file[static_cast<std::size_t>(n)], read.data<float>() + n * dim);
  });
  const auto row_of = [&](std::int32_t id) {
    if (!weight.empty()) return weight.data<float>() + id * dim;
    return read.data<float>() + (std::ranges::lower_bound(in_file, id) - in_file.begin()) * dim;
  };
  default_executor().parallel_for(std::ssize(sources), [&](std::int64_t sentence, int) {
    Output& output = outputs_[static_cast<std::size_t>(sentence)];
    const std::int64_t count = std::ssize(output.ids);
    output.weight = Tensor(DType::f32, {count, dim});
    if (!bias.empty()) output.bias = Tensor(DType::f32, {count});
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int32_t id = output.ids[static_cast<std::size_t>(n)];
      std::copy_n(row_of(id), dim, output.weight.data<float>() + n * dim);
      if (!bias.empty()) output.bias.data<float>()[n] = bias.data<float>()[id];
    }
  });
}

std::vector<std::vector<autograd::Probable>> ShortOutputs::most_probable(
    const Tensor& hidden, std::size_t count, const std::function<std::size_t(std::size_t row)>& sentence_of,
    autograd::LogProbabilities numbers) {
  static constexpr ProfileLabel label{"most probable of a short-list", ProfilePart::search};
  const ProfileSpan span(label);
  const auto rows = static_cast<std::size_t>(hidden.size(0));
  std::vector<std::size_t> begins;
  for (std::size_t row = 0; row < rows; ++row) {
    if (row == 0 || sentence_of(row) != sentence_of(row - 1)) begins.push_back(row);
  }
  std::vector<std::vector<autograd::Probable>> all(rows);
  default_executor().parallel_for(std::ssize(begins), [&](std::int64_t group, int) {
    const auto g = static_cast<std::size_t>(group);
    const std::size_t begin = begins[g], end = g + 1 < begins.size() ? begins[g + 1] : rows;
    const Output& output = outputs_[sentence_of(begin)];
    const autograd::Var own =
        autograd::slice(hidden, 0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin));
    const Tensor logits =
        autograd::linear(own, output.weight, output.bias, autograd::Products::by_row).value();
    auto best = autograd::most_probable(logits, count, output.never, numbers);
    for (std::vector<autograd::Probable>& row : best) {
      for (autograd::Probable& one : row) one.id = output.ids[static_cast<std::size_t>(one.id)];
    }
    std::ranges::move(best, all.begin() + static_cast<std::ptrdiff_t>(begin));
  });
  return all;
}

}  // namespace fovea::models
