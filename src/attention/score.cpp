#include "fovea/attention/score.h"

#include <algorithm>

#include "fovea/attention/score_definition.h"

namespace fovea {
namespace {

using Sizes = ArgumentSizes;
using Absent = ArgumentDeclaration::Absent;
using Start = ArgumentDeclaration::Start;

// The matrix W of kᵀ W q.
ArgumentDeclaration bilinear_matrix() {
  return {.name = "W",
          .axes = {{.size = &Sizes::key_dim}, {.size = &Sizes::query_dim}},
          .by_head = true,
          .start = Start::xavier};
}
ArgumentDeclaration to_hidden(const char* name, std::int64_t Sizes::*from, Absent absent) {
  return {.name = name,
          .axes = {{.size = &Sizes::hidden}, {.size = from}},
          .absent = absent,
          .start = Start::xavier};
}
ArgumentDeclaration of_hidden(const char* name, Start start, Absent absent = Absent::refused) {
  return {.name = name, .axes = {{.size = &Sizes::hidden}}, .absent = absent, .start = start};
}

ScoreDefinition additive(const char* name, PairKind pair) {
  return {.name = name,
          .pair = pair,
          .arguments = {to_hidden("W", &Sizes::query_dim, Absent::identity),
                        to_hidden("U", &Sizes::key_dim, Absent::identity), of_hidden("v", Start::xavier),
                        of_hidden("b", Start::zero, Absent::zero)},
          .query = {.matrix = 0, .bias = 3},
          .key = {.matrix = 1},
          .vector = 2};
}

}  // namespace

bool ScoreDefinition::has_hidden() const {
  return std::any_of(arguments.begin(), arguments.end(), [](const ArgumentDeclaration& argument) {
    return std::any_of(argument.axes.begin(), argument.axes.end(),
                       [](const ArgumentAxis& axis) { return axis.size == &Sizes::hidden; });
  });
}

std::int64_t hidden_of(const Score& score, const Arguments& given) {
  for (const ArgumentDeclaration& declaration : definition(score).arguments) {
    const ConstTensorView view = given["score." + declaration.name];
    const int rank = static_cast<int>(declaration.axes.size());
    if (!view || view.rank() != rank) continue;
    for (int axis = 0; axis < rank; ++axis) {
      if (declaration.axes[static_cast<std::size_t>(axis)].size == &Sizes::hidden) return view.size(axis);
    }
  }
  return 0;
}

const ScoreDefinition& ScaledDot::definition() {
  static const ScoreDefinition it{.name = "scaled-dot", .scaled_by_dim = true};
  return it;
}

const ScoreDefinition& Dot::definition() {
  static const ScoreDefinition it{.name = "dot"};
  return it;
}

const ScoreDefinition& Bilinear::definition() {
  static const ScoreDefinition it{
      .name = "bilinear", .arguments = {bilinear_matrix()}, .query = {.matrix = 0}};
  return it;
}

const ScoreDefinition& Biaffine::definition() {
  static const ScoreDefinition it{.name = "biaffine",
                                  .arguments = {bilinear_matrix(),
                                                {.name = "b",
                                                 .axes = {{.size = &Sizes::key_dim}},
                                                 .absent = Absent::zero,
                                                 .start = Start::zero}},
                                  .query = {.matrix = 0, .bias = 1}};
  return it;
}

const ScoreDefinition& Additive::definition() {
  static const ScoreDefinition it = additive("additive", PairKind::additive);
  return it;
}

const ScoreDefinition& LowRankBilinear::definition() {
  static const ScoreDefinition it{.name = "low-rank",
                                  .arguments = {to_hidden("W", &Sizes::query_dim, Absent::refused),
                                                to_hidden("U", &Sizes::key_dim, Absent::refused)},
                                  .query = {.matrix = 0},
                                  .key = {.matrix = 1}};
  return it;
}

const ScoreDefinition& Location::definition() {
  static const ScoreDefinition it{
      .name = "location",
      .arguments = {{.name = "W",
                     .axes = {{.size = &Sizes::key_len, .fit = ArgumentAxis::Fit::at_least},
                              {.size = &Sizes::query_dim}}}},
      .key_rows = 0};
  return it;
}

const ScoreDefinition& Coverage::definition() {
  static const ScoreDefinition it = [] {
    ScoreDefinition coverage = additive("coverage", PairKind::coverage);
    coverage.arguments.push_back(of_hidden("w", Start::xavier));
    coverage.coverage = 4;
    return coverage;
  }();
  return it;
}

const ScoreDefinition& Cosine::definition() {
  static const ScoreDefinition it{
      .name = "cosine",
      .arguments = {{.name = "temperature",
                     .axes = {{.size = &Sizes::num_query_heads}},
                     .start = Start::one}},
      .query = {.norm = RowMap::Norm::unit_length, .gain = 0, .gain_is = RowMap::Gain::divisor},
      .key = {.norm = RowMap::Norm::unit_length}};
  return it;
}

const ScoreDefinition& QkNorm::definition() {
  static const ScoreDefinition it{
      .name = "qk-norm",
      .scaled_by_dim = true,
      .arguments = {{.name = "query_gain", .axes = {{.size = &Sizes::query_dim}}, .start = Start::one},
                    {.name = "key_gain", .axes = {{.size = &Sizes::key_dim}}, .start = Start::one}},
      .query = {.norm = RowMap::Norm::root_mean_square, .gain = 0},
      .key = {.norm = RowMap::Norm::root_mean_square, .gain = 1}};
  return it;
}

}  // namespace fovea
