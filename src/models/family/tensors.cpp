#include "models/family/tensors.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "models/read_packed.h"

namespace fovea::models {

using autograd::PackedMatrix;

namespace {

// "model.layers.12.fc1.weight" -> "model.layers.*.fc1.weight" and "12".
std::pair<std::string, std::string> without_number(const std::string& name) {
  const std::string_view before = "layers.";
  const std::size_t at = name.find(before);
  if (at == std::string::npos) return {name, ""};
  const std::size_t begin = at + before.size();
  std::size_t end = begin;
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  if (end == begin) return {name, ""};
  return {name.substr(0, begin) + "*" + name.substr(end), name.substr(begin, end - begin)};
}

std::string with_number(std::string_view pattern, const std::string& number) {
  std::string name(pattern);
  const std::size_t star = name.find('*');
  if (star != std::string::npos) name.replace(star, 1, number);
  return name;
}

// Tensors of any family that are computed from the config, and those of layers that predict several tokens.
constexpr std::string_view copies_everywhere[] = {"*rotary_emb.inv_freq", "*position_ids"},
                           unused_everywhere[] = {"mtp.*"};

// Elements that one thread converts at once.
constexpr std::int64_t piece = std::int64_t{1} << 18;

// Not from the mapping: Linux 6.18 brings up to 2 MB around what is read there into memory, and biases lie
// between matrices. 23 MB of BERT-base's file stayed so, a fifth of its weights in int8.
void copy_rows(const files::StoredTensor& from, std::int64_t begin, std::int64_t count, float* to) {
  default_executor().parallel_for((count + piece - 1) / piece, [&](std::int64_t unit, int) {
    const std::int64_t at = unit * piece;
    from.read_to(to + at, begin + at, std::min(piece, count - at));
  });
}

// In the file [rows, columns] of ours transposed: element (r, c) of ours is theirs (c, r). By squares, so
// that neither side is read or written a cache line for each element.
void copy_transposed(const files::StoredTensor& from, std::int64_t first, std::int64_t rows,
                     std::int64_t columns, float* to) {
  constexpr std::int64_t side = 64;
  const std::int64_t width = from.shape[1];
  default_executor().parallel_for((rows + side - 1) / side, [&](std::int64_t unit, int) {
    float line[side];
    const std::int64_t r0 = unit * side, count = std::min(side, rows - r0);
    for (std::int64_t c0 = 0; c0 < columns; c0 += side) {
      for (std::int64_t c = c0; c < std::min(c0 + side, columns); ++c) {
        from.copy_to(line, c * width + first + r0, count);
        for (std::int64_t r = 0; r < count; ++r) to[(r0 + r) * columns + c] = line[r];
      }
    }
  });
}

[[noreturn]] void refuse_shape(const files::StoredTensor& tensor, const std::string& expected) {
  throw FileError(tensor.file, -1,
                  "tensor '" + excerpt(tensor.name) + "': expected shape " + expected + ", got " +
                      to_string(tensor.shape));
}

// The shape that theirs has, for ours; the first size is `rows`.
Shape theirs_of(const Shape& ours, TensorRule::Layout layout, std::int64_t rows) {
  if (layout == TensorRule::Layout::bias_of_heads) return {ours[3], ours[1]};
  if (layout == TensorRule::Layout::one_row) return {1, rows};
  if (layout == TensorRule::Layout::channels && ours.rank() == 2) return {rows, 1, ours[1]};
  if (ours.rank() == 1) return {rows};
  if (layout == TensorRule::Layout::transposed) return {ours[1], rows};
  return {rows, ours[1]};
}

// Calls `copy` for the rows of each head: where they begin in theirs, where in ours, and how many. Ours are
// the `part`-th of several parts of `rows` rows each, which `whole` rows hold.
template <class Copy>
void for_heads(std::int64_t whole, std::int64_t rows, std::int64_t part, std::int64_t head_dim, Copy&& copy) {
  const std::int64_t parts = whole / rows;
  for (std::int64_t h = 0; h < rows / head_dim; ++h)
    copy((h * parts + part) * head_dim, h * head_dim, head_dim);
}

// The rule of a parameter, and its tensor's name with the prefix.
struct Place {
  const TensorRule* rule = nullptr;
  std::string theirs;
};

// What the names of the class's tensors begin with, in files that have it.
std::string_view prefix_of(const Family& family, const FamilyConfig& config) {
  const ClassRow* row = class_of(family, config);
  return row && !row->prefix.empty() ? row->prefix : family.prefix;
}

Place place_of(const Family& family, const FamilyConfig& config, const std::string& parameter) {
  const auto [pattern, number] = without_number(parameter);
  const std::size_t dot = pattern.rfind('.');
  const std::string_view stem = std::string_view(pattern).substr(0, dot);
  const HeadRow* head = head_of(family, config.head);
  const std::span<const TensorRule> of_head = head ? std::span(head->tensors) : std::span<const TensorRule>();
  for (const std::span<const TensorRule> rules : {of_head, std::span(family.tensors)}) {
    // Where the family's own names have no prefix, that of a class is for the model below the head.
    const bool keeps_name = family.prefix.empty() && rules.data() == of_head.data();
    for (const TensorRule& rule : rules) {
      if (rule.only_if && !(config.*rule.only_if)) continue;
      if (rule.ours == "*") return {&rule, parameter};
      const bool whole = rule.ours == pattern;
      if (!whole && rule.ours != stem) continue;
      std::string theirs = with_number(rule.theirs, number) + (whole ? "" : pattern.substr(dot));
      if (!keeps_name && theirs.starts_with(family.prefix))
        theirs.replace(0, family.prefix.size(), prefix_of(family, config));
      return {&rule, std::move(theirs)};
    }
  }
  throw InvalidArgument("FamilyTensors", "parameter",
                        "one that " + family.defaults.model_type + " has a rule for", parameter);
}

}  // namespace

std::string name_in_family(const Family& family, const FamilyConfig& config, const std::string& parameter) {
  return place_of(family, config, parameter).theirs;
}

// Goes back to the last star only, so the time is at most the product of the lengths.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, behind = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++behind;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

namespace {

bool matches_any(std::span<const std::string_view> patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return matches(pattern, name); });
}

}  // namespace

FamilyTensors::FamilyTensors(const files::WeightFile& file, const Family& family, const FamilyConfig& config,
                             Read read)
    : file_(file), family_(family), config_(config), read_(read) {
  const auto tensors = file.tensors();
  prefixed_ = std::any_of(tensors.begin(), tensors.end(), [&](const files::StoredTensor& tensor) {
    return std::string_view(tensor.name).starts_with(prefix_of(family, config));
  });
}

std::string FamilyTensors::name_of(const std::string& parameter) const {
  auto [rule, name] = place_of(family_, config_, parameter);
  if (!rule->untied.empty() && find(std::string(rule->untied))) return std::string(rule->untied);
  const std::string_view prefix = prefix_of(family_, config_);
  if (!prefixed_ && name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

const files::StoredTensor* FamilyTensors::find(const std::string& theirs) const {
  if (const files::StoredTensor* found = file_.find(theirs)) return found;
  // The names of layer norms in the first BERT files.
  for (const auto& [now, before] : {std::pair{".weight", ".gamma"}, std::pair{".bias", ".beta"}}) {
    if (theirs.ends_with(now))
      return file_.find(theirs.substr(0, theirs.size() - std::string_view(now).size()) + before);
  }
  return nullptr;
}

const files::StoredTensor* FamilyTensors::stored(const std::string& parameter) const {
  return find(name_of(parameter));
}

bool FamilyTensors::is_table_of_one_side(const files::StoredTensor& tensor) const {
  if (!tensor.name.ends_with("coder.embed_tokens.weight")) return false;
  const auto shared = std::ranges::find_if(file_.tensors(), [](const files::StoredTensor& other) {
    return other.name.ends_with("shared.weight");
  });
  return shared != file_.tensors().end() &&
         (shared->type != tensor.type || !std::ranges::equal(shared->bytes, tensor.bytes));
}

bool FamilyTensors::is_copy(const files::StoredTensor& tensor) const {
  if (matches_any(copies_everywhere, tensor.name)) return true;
  if (matches_any(family_.copies, tensor.name)) return !is_table_of_one_side(tensor);
  const HeadRow* head = head_of(family_, config_.head);
  if (!head) return false;
  return std::ranges::any_of(head->tensors, [&](const TensorRule& rule) {
    if (rule.untied != tensor.name) return false;
    const files::StoredTensor* tied = find(std::string(rule.theirs));
    return tied && tied->type == tensor.type && std::ranges::equal(tied->bytes, tensor.bytes);
  });
}

Tensor FamilyTensors::take(const std::string& parameter, const Shape& shape) {
  using Layout = TensorRule::Layout;
  const TensorRule& rule = *place_of(family_, config_, parameter).rule;
  const std::string name = name_of(parameter);
  const files::StoredTensor* tensor = find(name);
  if (!tensor) throw FileError(file_.path(), -1, "tensor '" + name + "' is missing");
  if (!is_floating_point(tensor->type))
    throw FileError(tensor->file, -1,
                    "tensor '" + excerpt(tensor->name) + "': expected floating-point numbers, got " +
                        std::string(to_string(tensor->type)));
  const Layout layout = rule.layout;
  const bool transposed = layout == Layout::transposed && shape.rank() == 2;
  const bool fused =
      rule.ours != "*" && std::count_if(family_.tensors.begin(), family_.tensors.end(),
                                        [&](const TensorRule& r) { return r.theirs == rule.theirs; }) > 1;
  // A fused tensor has any number of rows that are left; another one those of the parameter.
  Rows& rows = taken_[tensor->name];
  const int row_axis = transposed ? 1 : 0;
  rows.whole = fused && tensor->shape.rank() == shape.rank() ? tensor->shape[row_axis] : shape[0];
  const std::int64_t end = rows.taken + shape[0];
  const Shape expected = theirs_of(shape, layout, rows.whole);
  if (!(tensor->shape == expected) || end > rows.whole)
    refuse_shape(*tensor, to_string(theirs_of(shape, layout, end)) + (fused ? " or more rows" : ""));
  const Place place{.tensor = tensor,
                    .layout = transposed || layout != Layout::transposed ? layout : Layout::same,
                    .shape = shape,
                    .first = std::exchange(rows.taken, end),
                    .whole = rows.whole};
  if (read_ == Read::later) {
    later_[parameter] = place;
    return Tensor::without_elements(DType::f32, shape);
  }
  Tensor value(DType::f32, shape);
  // What the decays of recurrences follow from has values too (RecurrentMixer::resting_log_decays).
  const bool of_decays =
      parameter.find(".mixer.") != std::string::npos && (shape.rank() == 1 || parameter.ends_with(".A_log"));
  if (read_ == Read::values || of_decays) copy(place, value.data<float>());
  return value;
}

void FamilyTensors::copy(const Place& place, float* to) const {
  using Layout = TensorRule::Layout;
  const Shape& shape = place.shape;
  const std::int64_t row = shape.count() / std::max<std::int64_t>(shape[0], 1);
  if (place.layout == Layout::one_row)
    copy_rows(*place.tensor, 0, shape[0], to);
  else if (place.layout == Layout::bias_of_heads)
    copy_transposed(*place.tensor, 0, shape[1], shape[3], to);
  else if (place.layout == Layout::transposed)
    copy_transposed(*place.tensor, place.first, shape[0], row, to);
  else if (place.layout == Layout::by_head)
    for_heads(place.whole, shape[0], place.first / shape[0], config_.head_dim,
              [&](std::int64_t theirs, std::int64_t ours, std::int64_t count) {
                copy_rows(*place.tensor, theirs * row, count * row, to + ours * row);
              });
  else
    copy_rows(*place.tensor, place.first * row, shape.count(), to);
}

void FamilyTensors::copy_matrix_rows(const Place& place, std::int64_t first, std::int64_t count,
                                     float* to) const {
  using Layout = TensorRule::Layout;
  const std::int64_t columns = place.shape[1];
  const files::StoredTensor& tensor = *place.tensor;
  if (place.layout == Layout::transposed) {
    // Theirs has our rows as columns. Its memory is read again for the next rows, so it is not let go here.
    constexpr std::int64_t side = PackedMatrix::panel_rows;
    float line[side];
    for (std::int64_t begin = 0; begin < count; begin += side) {
      const std::int64_t width = std::min(side, count - begin);
      for (std::int64_t c = 0; c < columns; ++c) {
        tensor.copy_to(line, c * tensor.shape[1] + place.first + first + begin, width);
        for (std::int64_t r = 0; r < width; ++r) to[(begin + r) * columns + c] = line[r];
      }
    }
    return;
  }
  const auto copy = [&](std::int64_t theirs, std::int64_t ours, std::int64_t rows) {
    tensor.read_to(to + ours * columns, theirs * columns, rows * columns);
  };
  if (place.layout != Layout::by_head) return copy(place.first + first, 0, count);
  const std::int64_t head = config_.head_dim, parts = place.whole / place.shape[0],
                     part = place.first / place.shape[0];
  for (std::int64_t r = 0; r < count;) {
    const std::int64_t at = first + r, rows = std::min(head - at % head, count - r);
    copy((at / head * parts + part) * head + at % head, r, rows);
    r += rows;
  }
}

void FamilyTensors::pack(nn::ParameterSet& parameters, autograd::WeightType type) const {
  // A matrix that is stored transposed is in memory as a whole until it is packed, others by their rows. Such
  // ones come first, while few packed ones are there: at the end they would lift the peak, of GPT-2 by 9 MB.
  std::vector<nn::Parameter*> order;
  for (nn::Parameter& parameter : parameters.all()) order.push_back(&parameter);
  std::ranges::stable_partition(order, [&](const nn::Parameter* parameter) {
    return later_.at(parameter->name).layout == TensorRule::Layout::transposed;
  });
  reserve_packed(parameters, type);
  for (nn::Parameter* const parameter : order) {
    const Place& place = later_.at(parameter->name);
    read_packed({.tensor = place.tensor,
                 .shape = place.shape,
                 .first_row = place.layout == TensorRule::Layout::same ? place.first : -1,
                 .copy = [&](float* to) { copy(place, to); },
                 .copy_rows = [&](std::int64_t first, std::int64_t count,
                                  float* to) { copy_matrix_rows(place, first, count, to); }},
                type, *parameter);
  }
}

nn::ParameterSet::Source FamilyTensors::source() {
  return [this](const std::string& name, const Shape& shape) { return take(name, shape); };
}

void FamilyTensors::check_all_taken() const {
  const ClassRow* row = class_of(family_, config_);
  for (const files::StoredTensor& tensor : file_.tensors()) {
    const auto found = taken_.find(tensor.name);
    if (found == taken_.end()) {
      if (is_table_of_one_side(tensor))
        throw FileError(
            tensor.file, -1,
            "tensor '" + excerpt(tensor.name) +
                "': expected the numbers of the shared table, which serves both sides, got others");
      if (!is_copy(tensor) && !matches_any(unused_everywhere, tensor.name) &&
          !matches_any(family_.unused, tensor.name) && !(row && matches(row->unused, tensor.name)))
        throw FileError(tensor.file, -1,
                        "tensor '" + excerpt(tensor.name) + "' belongs to no part of " +
                            family_.defaults.model_type + " that is known");
      continue;
    }
    if (found->second.taken != found->second.whole)
      throw FileError(tensor.file, -1,
                      "tensor '" + excerpt(tensor.name) + "': expected a shape with " +
                          std::to_string(found->second.taken) + " rows, got " + to_string(tensor.shape));
  }
}

files::TensorFile family_tensors(const Family& family, const FamilyConfig& config,
                                 const nn::ParameterSet& parameters) {
  using Layout = TensorRule::Layout;
  // The parts of each tensor, in the order in which the parameters were declared.
  std::map<std::string, std::vector<const nn::Parameter*>> parts;
  std::map<std::string, Layout> layouts;
  for (const nn::Parameter& parameter : parameters.all()) {
    Place place = place_of(family, config, parameter.name);
    if (!config.tied && !place.rule->untied.empty()) place.theirs = place.rule->untied;
    parts[place.theirs].push_back(&parameter);
    layouts[place.theirs] = place.rule->layout;
  }
  files::TensorFile file;
  for (const auto& [name, list] : parts) {
    const Shape& first = list.front()->value.shape();
    std::int64_t rows = 0;
    for (const nn::Parameter* part : list) rows += part->value.size(0);
    const Layout layout = layouts[name];
    Tensor whole(DType::f32, theirs_of(first, layout, rows));
    float* to = whole.data<float>();
    std::int64_t begin = 0;
    for (const nn::Parameter* part : list) {
      const Shape& shape = part->value.shape();
      const float* from = part->value.data<float>();
      if (layout == Layout::bias_of_heads) {
        for (std::int64_t h = 0; h < shape[1]; ++h)
          for (std::int64_t b = 0; b < shape[3]; ++b) to[b * shape[1] + h] = from[h * shape[3] + b];
      } else if (layout == Layout::transposed && shape.rank() == 2) {
        for (std::int64_t r = 0; r < shape[0]; ++r)
          for (std::int64_t c = 0; c < shape[1]; ++c) to[c * rows + begin + r] = from[r * shape[1] + c];
      } else if (layout == Layout::by_head) {
        const std::int64_t row = shape.count() / shape[0];
        for_heads(rows, shape[0], begin / shape[0], config.head_dim,
                  [&](std::int64_t theirs, std::int64_t ours, std::int64_t count) {
                    std::copy_n(from + ours * row, count * row, to + theirs * row);
                  });
      } else {
        std::copy_n(from, shape.count(), to + begin * (shape.count() / std::max<std::int64_t>(shape[0], 1)));
      }
      begin += shape[0];
    }
    file.tensors.push_back({name, std::move(whole)});
  }
  return file;
}

}  // namespace fovea::models
