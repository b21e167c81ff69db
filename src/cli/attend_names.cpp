// The names of the algebra for `fovea attend --help`, from the tables that the grammar reads.
#include <algorithm>
#include <array>
#include <cctype>

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
