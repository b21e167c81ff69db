// All that a program needs to compute attention: tensors, the parts of the algebra, and one call.
//
//   const Tensor out = attention(q, k, v, {.mask = Causal{} & SlidingWindow{.lookback = 127}});
//
// A program that calls often makes a plan once (plan/plan.h). Mods of its own are made by
// attention/make_mod.h; attention/expression.h reads the parts from text.
#pragma once

#include "fovea/attention/masks.h"
#include "fovea/attention/spec.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/core/tensor.h"
#include "fovea/plan/attention.h"
