// AttentionPlan::Impl: the spec and the shape of a plan, and the kernels that were chosen for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"
#include "fovea/plan/plan.h"
#include "kernels/problem.h"
#include "plan/choice.h"
#include "plan/rows.h"

namespace fovea {

struct AttentionPlan::Impl {
  AttentionSpec spec;
  AttentionShape shape;  // key_dim filled in
  DType dtype = DType::f32;
  Keys keys = Keys::all;
  Precision precision = Precision::full;
  double scale = 1.0;
  Choice choice;

  /// Every argument of the spec, in the order of declared_arguments, and the index of each part's first
  /// argument.
  std::vector<DeclaredArgument> arguments;
  std::vector<std::string> gradient_names;  // "gradients.mods[0].slope"; stored, so that checks of a call
                                            // make no text
  int first_mod_argument = 0, first_normalizer_argument = 0, first_weight_mod_argument = 0;

  const ScoreDefinition& score() const { return definition(spec.score); }
  bool coverage() const { return score().pair == PairKind::coverage; }
  /// Whether the score is a tanh of rows of queries and keys, and not a product.
  bool additive() const { return score().pair != PairKind::product; }
  /// Whether rows of queries (or keys) are mapped before a kernel sees them.
  bool query_mapped() const { return is_mapped(score().query); }
  bool key_mapped() const { return is_mapped(score().key) || score().key_rows >= 0; }
  /// Elements of a query or key row when it reaches the kernel.
  std::int64_t score_dim() const {
    const RowMap& query = score().query;
    return query.matrix < 0 ? shape.key_dim : matrix_rows(query.matrix);
  }
  /// Rows of a matrix of the score, which are the elements of a mapped row.
  std::int64_t matrix_rows(int argument) const {
    return score().arguments[static_cast<std::size_t>(argument)].axes[0].of(
        {.query_dim = shape.head_dim, .key_dim = shape.key_dim, .hidden = shape.hidden});
  }
  /// Whether forward (backward) needs whole rows of scores (kernels/problem.h).
  bool whole_row() const { return is_whole_row(spec.normalizer) || !spec.weight_mods.empty() || coverage(); }
  bool whole_row_backward() const {
    return whole_row() || std::any_of(spec.mods.begin(), spec.mods.end(),
                                      [](const Mod& mod) { return mod.node().table_by_query(); });
  }
  kernels::ScoreKind score_kind() const {
    return coverage()   ? kernels::ScoreKind::coverage
           : additive() ? kernels::ScoreKind::additive
                        : kernels::ScoreKind::dot;
  }
  /// The requests for which make_plan chose candidates, by duty.
  Requests requests() const;
  DType compute_dtype() const { return wide_dtype(dtype); }

 private:
  static bool is_mapped(const RowMap& map) {
    return map.matrix >= 0 || map.bias >= 0 || map.norm != RowMap::Norm::none;
  }
};

}  // namespace fovea
