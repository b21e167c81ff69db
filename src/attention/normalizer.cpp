#include "fovea/attention/normalizer.h"

#include <vector>

namespace fovea {

std::span<const ArgumentDeclaration> SoftmaxWithSink::arguments() {
  static const std::vector<ArgumentDeclaration> list{{.name = "sink",
                                                      .axes = {{.size = &ArgumentSizes::num_query_heads}},
                                                      .start = ArgumentDeclaration::Start::zero}};
  return list;
}

std::span<const ArgumentDeclaration> ScalableSoftmax::arguments() {
  static const std::vector<ArgumentDeclaration> list{
      {.name = "scale", .axes = {{.size = &ArgumentSizes::num_query_heads}}}};
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
