// Checks of the gradients that a mechanism writes.
#pragma once

#include "plan/call.h"
#include "plan/rows.h"

namespace fovea {

class GradientChecks {
 public:
  /// No gradient may share memory with the operands of `read`.
  GradientChecks(const char* function, const AttentionInputs& read)
      : memory(function), function_(function), read_(read) {}
  /// A gradient, if it is wanted, has the dtype and the shape of its input.
  void gradient(const char* argument, const TensorView& view, const ConstTensorView& input) {
    if (!view) return;
    if (!input)
      throw InvalidArgument(function_, argument, "no gradient, because the input was not given",
                            described(view));
    check_output(function_, argument, view, input.dtype(), input.shape(), read_);
    memory.writes(argument, view);
  }
  void contiguous_gradient(const char* argument, const TensorView& view, const ConstTensorView& input) {
    gradient(argument, view, input);
    if (view) check_is_contiguous(function_, argument, view);
  }
  /// What the gradient of the queries is added to; it may be that gradient itself.
  void query_before(const ConstTensorView& before, const TensorView& d_query) {
    if (!before) return;
    check_view(function_, "gradients.query_before", before, read_.query.dtype(), read_.query.shape());
    if (!same_view(before, d_query)) memory.reads("gradients.query_before", before);
  }

  OverlapCheck memory;

 private:
  const char* function_;
  AttentionInputs read_;
};

}  // namespace fovea
