// Feature maps of linear attention as ops, on strided views of [B, L, heads * dim].
#include "fovea/plan/feature_maps.h"

#include <string>

#include "autograd/heads.h"
#include "autograd/record.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

Var favor_features(const Favor& map, const Var& x, const Tensor& projection, std::int64_t num_heads) {
  static constexpr ProfileLabel label{"favor features", ProfilePart::recurrence};
  const ProfileSpan span(label, moved({&x}));
  if (x.shape().rank() != 3 || num_heads < 1 || x.size(2) % num_heads != 0)
    throw InvalidArgument("favor_features", "x",
                          "[batch, len, a multiple of " + std::to_string(num_heads) + " heads]",
                          to_string(x.shape()));
  if (projection.shape().rank() != 2)
    throw InvalidArgument("favor_features", "projection", "[num_features, dim]",
                          to_string(projection.shape()));
  const Tensor features(DType::f32, {x.size(0), x.size(1), num_heads * projection.size(0)});
  fovea::favor_features(map, heads_of(x.value(), num_heads), projection, heads_of(features, num_heads));
  return result_of(tape_of({&x}), features, [=](const Tensor& d) {
    const Tensor dx(DType::f32, x.shape());
    favor_features_backward(map, heads_of(x.value(), num_heads), projection, heads_of(d, num_heads),
                            heads_of(dx, num_heads));
    accumulate(x, dx);
  });
}

}  // namespace fovea::autograd
