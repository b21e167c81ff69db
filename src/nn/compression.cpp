#include "fovea/nn/compression.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "fovea/autograd/row_groups.h"
#include "fovea/core/kept_vector.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {
namespace {

void positive(const char* argument, std::int64_t got) {
  if (got < 1)
    throw InvalidArgument("RowCompressor", std::string("options.") + argument, "at least 1",
                          std::to_string(got));
}

void check(const LinformerRows& o) {
  positive("kept", o.kept);
  positive("longest", o.longest);
}
void check(const MeanRows& o) {
  positive("group", o.group);
}
void check(const StridedRows& o) {
  positive("stride", o.stride);
}
void check(const LearnedRows& o) {
  positive("kept", o.kept);
  positive("num_heads", o.num_heads);
}

RowCompressor::Rows strided(const Var& x, std::span<const std::int64_t> lengths, std::int64_t stride) {
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > x.size(1))
      throw InvalidArgument("RowCompressor", "lengths", "lengths in [0, " + std::to_string(x.size(1)) + "]",
                            std::to_string(length));
  }
  const auto rounded_up = [stride](std::int64_t rows) { return rows / stride + (rows % stride != 0); };
  const std::int64_t kept = rounded_up(x.size(1));
  std::vector<std::int64_t> index;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t i = 0; i < kept; ++i) index.push_back(i * stride);
  }
  const Var rows = kept > 0 ? autograd::gather_rows(x, index, kept) : x;
  RowCompressor::Rows result{.keys = rows, .values = rows};
  std::transform(lengths.begin(), lengths.end(), std::back_inserter(result.lengths), rounded_up);
  return result;
}

// Rows that are made of nothing are not seen: attention to an entry without rows gives 0.
KeptVector<std::int64_t> seen_of(std::span<const std::int64_t> lengths, std::int64_t kept) {
  if (std::find(lengths.begin(), lengths.end(), 0) == lengths.end()) return {};
  KeptVector<std::int64_t> seen;
  for (const std::int64_t length : lengths) seen.push_back(length > 0 ? kept : 0);
  return seen;
}

RowCompressor::Rows means(const Var& x, std::span<const std::int64_t> lengths, std::int64_t size) {
  const autograd::RowGroups groups = autograd::neighbour_groups(x.size(0), x.size(1), size, lengths);
  const Var rows = autograd::merge_rows(x, groups);
  RowCompressor::Rows result{.keys = rows, .values = rows};
  if (!lengths.empty()) result.lengths = groups.lengths;
  if (!lengths.empty() || x.size(1) % size != 0) result.log_sizes = autograd::log_sizes(groups);
  return result;
}

}  // namespace

const char* name_of(const Compression& compression) {
  static constexpr std::array names{"linformer", "mean", "strided", "learned"};
  return names.at(compression.index());
}

RowCompressor::RowCompressor(ParameterSet& set, const std::string& name, std::int64_t dim,
                             const Compression& options)
    : options_(options) {
  std::visit([](const auto& o) { check(o); }, options);
  if (const auto* linformer = std::get_if<LinformerRows>(&options)) {
    keys_ = &set.xavier(name + ".e", {linformer->kept, linformer->longest});
    values_ = &set.xavier(name + ".f", {linformer->kept, linformer->longest});
  }
  if (const auto* learned = std::get_if<LearnedRows>(&options))
    pooling_ = std::make_shared<const AttentionPooling>(set, name, dim, learned->num_heads, learned->kept);
}

RowCompressor::Rows RowCompressor::operator()(Context& context, const Var& x,
                                              std::span<const std::int64_t> lengths) const {
  if (const auto* linformer = std::get_if<LinformerRows>(&options_)) {
    if (x.size(1) > linformer->longest)
      throw InvalidArgument("RowCompressor", "x",
                            "at most " + std::to_string(linformer->longest) + " rows, options.longest",
                            to_string(x.shape()));
    return {.keys = autograd::mix_rows(context.use(*keys_), x, lengths),
            .values = autograd::mix_rows(context.use(*values_), x, lengths),
            .lengths = seen_of(lengths, linformer->kept)};
  }
  if (pooling_) {
    const Var rows = (*pooling_)(context, x, lengths);
    return {.keys = rows, .values = rows, .lengths = seen_of(lengths, rows.size(1))};
  }
  if (const auto* mean = std::get_if<MeanRows>(&options_)) return means(x, lengths, mean->group);
  return strided(x, lengths, std::get<StridedRows>(options_).stride);
}

}  // namespace fovea::nn
