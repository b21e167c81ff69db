// The names of the algebra for `fovea attend --help`, from the tables that the grammar reads.
#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "attention/mask_names.h"
#include "attention/names.h"
#include "cli/attend_arguments.h"
#include "fovea/attention/mod_node.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"

namespace fovea::cli {
namespace {

// "a number of buckets" -> "BUCKETS".
std::string placeholder(std::string text) {
  for (const char* article : {"an ", "a ", "number of "}) {
    if (text.starts_with(article)) text.erase(0, std::string(article).size());
  }
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string numbers_of(const ModName& row) {
  std::string text;
  for (const ModNumber& number : row.numbers) {
    if (!number.what) break;
    text += (text.empty() ? "(" : ",") + (number.kind == ModNumber::Kind::direction
                                              ? std::string("causal|bidirectional")
                                              : placeholder(number.what));
  }
  return text + ")";
}

// "=SLOPE.npy" in brackets where the file may be left out.
std::string file_of(const Mod& mod) {
  const std::vector<ArgumentDeclaration>& arguments = mod.node().arguments();
  if (arguments.empty()) return {};
  const bool forget = to_string(mod) == to_string(Mod(ForgetGate{}));  // its file makes both arguments
  const std::string file = "=" + (forget ? "LOG_GATES" : placeholder(arguments.front().name)) + ".npy";
  return arguments.front().start == ArgumentDeclaration::Start::computed ? "[" + file + "]" : file;
}

template <class Rows, class Text>
std::string joined(const Rows& rows, Text&& text_of) {
  std::string text;
  for (const auto& row : rows) text += (text.empty() ? "" : ", ") + text_of(row);
  return text;
}

std::string axis_text(const ArgumentAxis& axis) {
  using Sizes = ArgumentSizes;
  constexpr std::pair<std::int64_t Sizes::*, const char*> names[] = {
      {&Sizes::batch, "batch"},     {&Sizes::num_query_heads, "heads"}, {&Sizes::query_len, "query_len"},
      {&Sizes::key_len, "key_len"}, {&Sizes::query_dim, "query_dim"},   {&Sizes::key_dim, "key_dim"},
      {&Sizes::hidden, "hidden"}};
  std::string text = axis.fit == ArgumentAxis::Fit::at_least ? "at least " : "";
  for (const auto& [size, name] : names)
    if (axis.size == size) return text + name;
  if (axis.size) throw std::logic_error("attend: a size of a call has no name");
  return text + std::to_string(axis.number);
}

// "[key_dim, query_dim] or [heads, key_dim, query_dim]": shape_text() with the names of the sizes.
std::string shape_of(const ArgumentDeclaration& declaration) {
  const std::string axes = joined(declaration.axes, axis_text);
  return "[" + axes + "]" + (declaration.by_head ? " or [heads, " + axes + "]" : "");
}

std::span<const ArgumentDeclaration> declarations_of(const ArgumentFlag& flag, std::string_view part) {
  if (part == "concat") part = Additive::definition().name;  // of its two parts
  for (const ScoreName& row : score_names())
    if (flag.is_of_score() && row.name == part) return definition(row.score).arguments;
  for (const NormalizerName& row : normalizer_names())
    if (!flag.is_of_score() && row.name == part) return arguments(row.make(row.absent));
  return {};
}

std::string shape_of(const ArgumentFlag& flag, std::string_view part) {
  if (part == "concat" && own_name(flag.argument) == "W") return "[hidden, query_dim + key_dim]";
  for (const ArgumentDeclaration& declaration : declarations_of(flag, part))
    if (declaration.name == own_name(flag.argument)) return shape_of(declaration);
  throw std::logic_error(std::string(flag.flag) + ": " + std::string(part) + " has no " + flag.argument);
}

}  // namespace

std::string names_of_scores() {
  return joined(score_names(), [](const ScoreName& row) { return std::string(row.name); }) + ", concat";
}

std::string names_of_mods() {
  return joined(mod_names(), [](const ModName& row) {
    std::string text;
    // Any numbers that every mod takes: only the names of the arguments are wanted.
    const ModNumbers numbers{.real = {1, 1, 1}, .count = {32, 128, 1}};
    if (row.make) text = row.name + numbers_of(row) + file_of(row.make(numbers));
    if (row.bare) text += (text.empty() ? "" : ", ") + (row.name + file_of(row.bare()));
    return text;
  });
}

std::string names_of_masks() {
  return joined(mask_names(), [](const MaskName& row) {
    return std::string(row.name) + (*row.numbers ? "(" + std::string(row.numbers) + ")" : "");
  });
}

std::string names_of_normalizers() {
  return joined(normalizer_names(), [](const NormalizerName& row) {
    return std::string(row.name) + (row.number ? "(" + placeholder(row.number) + ")" : "");
  });
}

std::string help_of(const ArgumentFlag& flag) {
  const std::string shape = shape_of(flag, flag.parts.front());
  for (const std::string_view part : flag.parts)
    if (shape_of(flag, part) != shape) throw std::logic_error(std::string(flag.flag) + ": different shapes");
  return std::string(flag.argument) + " " + shape + " of " + alternatives(flag.parts) + flag.formula;
}

std::string alternatives(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t n = 0; n < names.size(); ++n) {
    if (n > 0) text += n + 1 == names.size() ? " or " : ", ";
    text += names[n];
  }
  return text;
}

std::string names_without_flags() {
  std::string text;
  const auto add = [&text](const std::string& prefix, std::string_view part,
                           std::span<const ArgumentDeclaration> declarations) {
    for (const ArgumentDeclaration& declaration : declarations) {
      const std::string name = prefix + declaration.name;
      const auto flags = argument_flags();
      if (std::none_of(flags.begin(), flags.end(),
                       [&](const ArgumentFlag& flag) { return name == flag.argument && flag.serves(part); }))
        text += (text.empty() ? "" : ", ") + name;
    }
  };
  for (const ScoreName& row : score_names()) add("score.", row.name, definition(row.score).arguments);
  for (const NormalizerName& row : normalizer_names())
    add("normalizer.", row.name, arguments(row.make(row.absent)));
  return text;
}

}  // namespace fovea::cli
