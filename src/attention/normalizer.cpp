#include "fovea/attention/normalizer.h"

#include <cmath>
#include <vector>

#include "fovea/attention/normalizer_properties.h"

namespace fovea {

std::span<const ArgumentDeclaration> SoftmaxWithSink::arguments() {
  static const std::vector<ArgumentDeclaration> list{{.name = "sink",
                                                      .axes = {{.size = &ArgumentSizes::num_query_heads}},
                                                      .start = ArgumentDeclaration::Start::zero}};
  return list;
}

std::span<const ArgumentDeclaration> ScalableSoftmax::arguments() {
  // c·ln n is the factor of the scores. A layer does not know how many keys its calls will have, and the
  // scores already have their own scale. So c starts where the factor is 1 in the mean over n = 1 … 1,024:
  // the layer begins near a plain softmax. From c = 1, whose factor is 7 at 1,024 keys, it would begin nearly
  // hard, and a hard softmax hardly learns (docs/decisions/0019).
  static const double start = 1024.0 / std::lgamma(1025.0);
  static const std::vector<ArgumentDeclaration> list{{.name = "scale",
                                                      .axes = {{.size = &ArgumentSizes::num_query_heads}},
                                                      .start = ArgumentDeclaration::Start::number,
                                                      .start_number = start}};
  return list;
}

std::span<const ArgumentDeclaration> AdaptiveEntmax::arguments() {
  static const std::vector<ArgumentDeclaration> list{{.name = "sparsity",
                                                      .axes = {{.size = &ArgumentSizes::num_query_heads}},
                                                      .finite = true,
                                                      .start = ArgumentDeclaration::Start::zero}};
  return list;
}

std::span<const ArgumentDeclaration> LinearChain::arguments() {
  // Potentials of (z_j, z_j+1). Infinite ones would make sums of infinities; -1e4 forbids a pair just as
  // well.
  static const std::vector<ArgumentDeclaration> list{{.name = "transitions",
                                                      .axes = {{.number = 2}, {.number = 2}},
                                                      .layout = ArgumentDeclaration::Layout::contiguous,
                                                      .by_head = true,
                                                      .finite = true,
                                                      .start = ArgumentDeclaration::Start::zero}};
  return list;
}

}  // namespace fovea
