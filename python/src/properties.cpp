// What the definitions of scores, mods and normalisers say of themselves, by their names in the text form.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/expression.h"
#include "fovea/attention/mod_node.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"
#include "module.h"

namespace fovea::python {
namespace {

using Properties = std::map<std::string, std::vector<std::string>>;

// The size "hidden" or "key_len": the first axis of this argument has it.
using Sizes = std::map<std::string, std::map<std::string, std::string>>;

// An argument that every call gives, and whose first axis is `size`; empty where there is none.
std::string argument_of(const ScoreDefinition& score, std::int64_t ArgumentSizes::*size) {
  for (const ArgumentDeclaration& argument : score.arguments) {
    if (argument.absent == ArgumentDeclaration::Absent::refused && argument.axes.front().size == size)
      return "score." + argument.name;
  }
  return {};
}

template <class S>
void add_sizes(Sizes& all) {
  const ScoreDefinition& score = S::definition();
  std::map<std::string, std::string>& sizes = all[score.name];
  if (score.has_hidden()) sizes["hidden"] = argument_of(score, &ArgumentSizes::hidden);
  if (score.key_rows >= 0)
    sizes["key_len"] = "score." + score.arguments[static_cast<std::size_t>(score.key_rows)].name;
}

template <class S>
void add_score(Properties& all) {
  const ScoreDefinition& score = S::definition();
  std::vector<std::string>& properties = all[score.name];
  if (score.key_rows >= 0) properties.push_back("no keys");
  if (score.pair == PairKind::coverage) properties.push_back("whole rows");
}

template <class N>
void add_normalizer(Properties& all) {
  const Normalizer normalizer = N{};
  std::vector<std::string>& properties = all[N::name];
  if (draws(normalizer)) properties.push_back("draws");
  if (derivative_of(normalizer) == WeightDerivative::estimate) properties.push_back("estimated gradient");
  if (derivative_of(normalizer) == WeightDerivative::none) properties.push_back("constant weights");
  if (kind_of(normalizer) == NormalizerKind::softmax && !counts_keys(normalizer))
    properties.push_back("log-sum-exp of scores");
}

template <std::size_t... I>
void add_all_sizes(Sizes& all, std::index_sequence<I...>) {
  (add_sizes<std::variant_alternative_t<I, Score>>(all), ...);
}
template <std::size_t... I>
void add_scores(Properties& all, std::index_sequence<I...>) {
  (add_score<std::variant_alternative_t<I, Score>>(all), ...);
}
template <std::size_t... I>
void add_normalizers(Properties& all, std::index_sequence<I...>) {
  (add_normalizer<std::variant_alternative_t<I, Normalizer>>(all), ...);
}

}  // namespace

void bind_properties(nanobind::module_& module) {
  module.def("properties", [] {
    Properties all;
    add_scores(all, std::make_index_sequence<std::variant_size_v<Score>>());
    add_normalizers(all, std::make_index_sequence<std::variant_size_v<Normalizer>>());
    return all;
  });
  module.def("sizes_of_scores", [] {
    Sizes all;
    add_all_sizes(all, std::make_index_sequence<std::variant_size_v<Score>>());
    return all;
  });
  module.def("mod_needs_whole_rows",
             [](std::string_view text) { return parse_mod(text).node().table_by_query(); });
}

}  // namespace fovea::python
