// All that a program needs for attention: tensors, the parts of the algebra, plans and calls.
//
//   const Tensor out = attention(q, k, v, {.mask = Causal{} & SlidingWindow{.lookback = 127}});
#pragma once

#include "fovea/attention/expression.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/spec.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/core/tensor.h"
#include "fovea/plan/plan.h"
