#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "plan/impl.h"

namespace fovea {
namespace {

bool innermost_contiguous(const ConstTensorView& view) {
  return view.rank() == 0 || view.size(-1) <= 1 || view.stride(-1) == 1;
}

// First and one-past-last byte that a view can touch.
std::pair<std::uintptr_t, std::uintptr_t> extent(const ConstTensorView& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  std::int64_t low = 0, high = view.count() > 0 ? element : 0;
  for (int axis = 0; axis < view.rank() && high > 0; ++axis) {
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis) * element;
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.raw());
  return {base + static_cast<std::uintptr_t>(low), base + static_cast<std::uintptr_t>(high)};
}

}  // namespace

std::string described(const ConstTensorView& view) {
  return std::string(to_string(view.dtype())) + " " + to_string(view.shape());
}

void check_view(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                const Shape& shape) {
  if (view.dtype() != dtype || !(view.shape() == shape)) {
    throw InvalidArgument(function, argument, std::string(to_string(dtype)) + " " + to_string(shape),
                          described(view));
  }
  if (!innermost_contiguous(view)) {
    throw InvalidArgument(function, argument, "a contiguous innermost axis",
                          "stride " + std::to_string(view.stride(-1)));
  }
  if (view.count() > 0 && view.empty())
    throw InvalidArgument(function, argument, "data of " + to_string(shape), "a null pointer");
}

bool overlap(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.count() == 0 || b.count() == 0) return false;
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

bool overlaps_itself(const ConstTensorView& view) {
  if (view.count() == 0) return false;
  std::array<std::pair<std::int64_t, std::int64_t>, max_rank> axes;  // (|stride|, size)
  int rank = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) > 1) axes[rank++] = {std::abs(view.stride(axis)), view.size(axis)};
  }
  std::int64_t reach = 0;
  for (int axis = 0; axis < rank; ++axis) {
    std::iter_swap(axes.begin() + axis, std::min_element(axes.begin() + axis, axes.begin() + rank));
    if (axes[axis].first <= reach) return true;
    reach += axes[axis].first * (axes[axis].second - 1);
  }
  return false;
}

namespace {

// What a call writes must not be what it reads or writes elsewhere. Views of one packed [B, L, 3, H, D]
// buffer are interleaved but apart, so extents alone refuse only contiguous views.
bool certainly_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  if (!a || !b || a.count() == 0 || b.count() == 0) return false;
  if (a.raw() == b.raw()) return true;
  const auto end = [](const ConstTensorView& x) {
    return x.raw() + x.count() * static_cast<std::int64_t>(size_of(x.dtype()));
  };
  return a.contiguous() && b.contiguous() && a.raw() < end(b) && b.raw() < end(a);
}

void check_vector(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                  std::int64_t size) {
  check_view(function, argument, view, dtype, Shape{size});
}

// The tensors of a score that a tanh of projections makes.
void check_additive(const char* function, const AttentionPlan::Impl& plan, const ScoreParameters& given) {
  const DType dtype = plan.compute_dtype();
  const AttentionShape& s = plan.shape;
  const auto projected = [&](std::int64_t size, const char* what) {
    if (size != s.hidden) {
      throw InvalidArgument(function, what,
                            "a matrix, or operands already projected to hidden " + std::to_string(s.hidden),
                            "none, with " + std::to_string(size) + " elements");
    }
  };
  if (given.W)
    check_view(function, "parameters.W", given.W, dtype, {s.hidden, s.head_dim});
  else
    projected(s.head_dim, "parameters.W");
  if (given.U)
    check_view(function, "parameters.U", given.U, dtype, {s.hidden, s.key_dim});
  else
    projected(s.key_dim, "parameters.U");
  check_vector(function, "parameters.v", given.v, dtype, s.hidden);
  if (given.b) check_vector(function, "parameters.b", given.b, dtype, s.hidden);
  if (plan.coverage()) check_vector(function, "parameters.w", given.w, dtype, s.hidden);
}

void check_location(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    const ScoreParameters& given) {
  if (given.W.rank() == 2 && given.W.size(0) >= sizes.key_len)
    return check_view(function, "parameters.W", given.W, plan.compute_dtype(),
                      {given.W.size(0), plan.shape.head_dim});
  throw InvalidArgument(function, "parameters.W",
                        "[at least " + std::to_string(sizes.key_len) + ", " +
                            std::to_string(plan.shape.head_dim) + "], a row a key",
                        given.W ? described(given.W) : "nothing");
}

void check_parameters(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                      const ScoreParameters& given) {
  const DType dtype = plan.compute_dtype();
  const AttentionShape& s = plan.shape;
  const auto unused = [&](const ConstTensorView& view, const char* argument) {
    if (view)
      throw InvalidArgument(function, argument, "nothing: this score has no such parameter", described(view));
  };
  if (!plan.coverage()) unused(given.w, "parameters.w");
  if (plan.additive()) return check_additive(function, plan, given);
  unused(given.v, "parameters.v");
  unused(given.b, "parameters.b");
  if (plan.low_rank()) {
    check_view(function, "parameters.W", given.W, dtype, {s.hidden, s.head_dim});
    return check_view(function, "parameters.U", given.U, dtype, {s.hidden, s.key_dim});
  }
  unused(given.U, "parameters.U");
  if (plan.location()) return check_location(function, plan, sizes, given);
  if (!plan.bilinear()) return unused(given.W, "parameters.W");
  const bool each_head = given.W.rank() == 3;
  check_view(function, "parameters.W", given.W, dtype,
             each_head ? Shape{s.num_query_heads, s.key_dim, s.head_dim} : Shape{s.key_dim, s.head_dim});
}

void check_normalizer(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs) {
  const std::int64_t heads = plan.shape.num_query_heads;
  const auto unused = [&](const ConstTensorView& view, const char* argument) {
    if (view) throw InvalidArgument(function, argument, "nothing: this normaliser has none", described(view));
  };
  if (std::holds_alternative<SoftmaxWithSink>(plan.spec.normalizer))
    check_vector(function, "sink", inputs.sink, plan.compute_dtype(), heads);
  else
    unused(inputs.sink, "sink");
  if (!std::holds_alternative<LinearChain>(plan.spec.normalizer))
    return unused(inputs.transitions, "transitions");
  check_view(function, "transitions", inputs.transitions, plan.compute_dtype(),
             inputs.transitions.rank() == 3 ? Shape{heads, 2, 2} : Shape{2, 2});
  if (!inputs.transitions.contiguous())
    throw InvalidArgument(function, "transitions", "a contiguous tensor", "a strided one");
  for (std::int64_t n = 0; n < inputs.transitions.count(); ++n) {
    const double potential = plan.compute_dtype() == DType::f64
                                 ? inputs.transitions.data<double>()[n]
                                 : static_cast<double>(inputs.transitions.data<float>()[n]);
    if (!std::isfinite(potential))
      throw InvalidArgument(function, "transitions", "finite potentials (-1e4 forbids as well)",
                            std::to_string(potential));
  }
}

// Lengths of the call: of the keys by whichever of key, value and W tells them.
CallSizes sizes_of(const AttentionPlan::Impl& plan, const AttentionInputs& inputs) {
  const std::int64_t keys = !plan.location()                 ? inputs.key.size(2)
                            : plan.shape.value_dim > 0       ? inputs.value.size(2)
                            : inputs.parameters.W.rank() > 0 ? inputs.parameters.W.size(0)
                                                             : 0;
  return {inputs.query.size(0), inputs.query.size(2), keys};
}

void check_capacity(const char* function, const char* argument, std::int64_t size, std::int64_t capacity,
                    const char* what) {
  if (size > capacity) {
    throw InvalidArgument(function, argument,
                          std::string(what) + " of at most the plan's " + std::to_string(capacity),
                          std::to_string(size));
  }
}

}  // namespace

CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs) {
  const AttentionShape& s = plan.shape;
  const auto four = [&](const ConstTensorView& view, const char* argument) {
    if (view.rank() != 4)
      throw InvalidArgument(function, argument, "[batch, heads, length, dim]", described(view));
  };
  const auto none = [&](const ConstTensorView& view, const char* argument, const char* why) {
    if (view) throw InvalidArgument(function, argument, why, described(view));
  };
  four(inputs.query, "query");
  if (!plan.location()) four(inputs.key, "key");
  if (s.value_dim > 0) four(inputs.value, "value");
  const CallSizes sizes = sizes_of(plan, inputs);
  check_capacity(function, "query", sizes.batch, s.batch, "a batch");
  check_capacity(function, "query", sizes.query_len, s.query_len, "a query_len");
  check_capacity(function, "key", sizes.key_len, s.key_len, "a key_len");
  check_view(function, "query", inputs.query, plan.dtype,
             {sizes.batch, s.num_query_heads, sizes.query_len, s.head_dim});
  if (plan.location())
    none(inputs.key, "key", "nothing: a location score reads no keys");
  else
    check_view(function, "key", inputs.key, plan.dtype,
               {sizes.batch, s.num_kv_heads, sizes.key_len, s.key_dim});
  if (s.value_dim > 0)
    check_view(function, "value", inputs.value, plan.dtype,
               {sizes.batch, s.num_kv_heads, sizes.key_len, s.value_dim});
  else
    none(inputs.value, "value", "nothing: the plan has no values (value_dim 0)");
  check_parameters(function, plan, sizes, inputs.parameters);
  check_normalizer(function, plan, inputs);
  if (plan.spec.mask.node().needs_key_lengths()) {
    if (static_cast<std::int64_t>(inputs.key_lengths.size()) != sizes.batch) {
      throw InvalidArgument(function, "key_lengths",
                            "as many lengths as batch entries, " + std::to_string(sizes.batch),
                            std::to_string(inputs.key_lengths.size()));
    }
    for (const std::int64_t length : inputs.key_lengths) {
      if (length < 0 || length > sizes.key_len) {
        throw InvalidArgument(function, "key_lengths",
                              "lengths in [0, key_len " + std::to_string(sizes.key_len) + "]",
                              std::to_string(length));
      }
    }
  }
  const int farthest =
      plan.spec.mods.empty() && plan.spec.weight_mods.empty() ? 40 : 30;  // a ModSite has 32 bits
  const std::int64_t offset = inputs.query_offset.value_or(0);
  if (offset > std::int64_t{1} << farthest || offset < -(std::int64_t{1} << farthest)) {
    throw InvalidArgument(function, "query_offset", "an offset within 2^" + std::to_string(farthest),
                          std::to_string(offset));
  }
  return sizes;
}

Shape weights_shape(const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    std::span<const std::int64_t> heads, std::span<const std::int64_t> rows) {
  return {sizes.batch, heads.empty() ? plan.shape.num_query_heads : static_cast<std::int64_t>(heads.size()),
          rows.empty() ? sizes.query_len : static_cast<std::int64_t>(rows.size()), sizes.key_len};
}

void check_chosen(const char* function, const char* argument, std::span<const std::int64_t> chosen,
                  std::int64_t count) {
  for (const std::int64_t index : chosen) {
    if (index < 0 || index >= count)
      throw InvalidArgument(function, argument, "numbers in [0, " + std::to_string(count) + ")",
                            std::to_string(index));
  }
}

void check_output(const char* function, const char* argument, const TensorView& view, DType dtype,
                  const Shape& shape, const AttentionInputs& inputs) {
  check_view(function, argument, view, dtype, shape);
  if (overlaps_itself(view)) {
    throw InvalidArgument(function, argument, "elements that do not share memory",
                          "strides smaller than the axes inside them");
  }
  for (const ConstTensorView* input : {&inputs.query, &inputs.key, &inputs.value}) {
    if (*input && overlap(view, *input))
      throw InvalidArgument(function, argument, "memory apart from query, key and value",
                            "overlapping memory");
  }
}

void Apart::reads(const AttentionInputs& inputs) {
  reads("parameters.W", inputs.parameters.W);
  reads("parameters.U", inputs.parameters.U);
  reads("parameters.v", inputs.parameters.v);
  reads("parameters.b", inputs.parameters.b);
  reads("parameters.w", inputs.parameters.w);
  reads("sink", inputs.sink);
  reads("transitions", inputs.transitions);
  for (const ConstTensorView& argument : inputs.mod_arguments) reads("mod_arguments", argument);
  for (const ConstTensorView& argument : inputs.weight_mod_arguments) reads("weight_mod_arguments", argument);
}

void Apart::check(const Named& written, const Named& other) const {
  if (certainly_overlap(written.view, other.view))
    throw InvalidArgument(function_, written.argument, std::string("memory apart from ") + other.argument,
                          "overlapping memory");
}

void Apart::check() const {
  for (std::size_t i = 0; i < written_count_; ++i) {
    for (std::size_t j = i + 1; j < written_count_; ++j) check(written_[i], written_[j]);
    for (std::size_t j = 0; j < read_count_; ++j) check(written_[i], read_[j]);
  }
}

std::span<std::byte> workspace_of(const char* function, const CallResources& resources, std::size_t bytes) {
  if (resources.workspace.data()) {
    void* begin = resources.workspace.data();
    std::size_t room = resources.workspace.size();
    if (!std::align(64, bytes, begin, room)) {
      throw InvalidArgument(function, "resources.workspace", std::to_string(bytes + 63) + " bytes",
                            std::to_string(resources.workspace.size()));
    }
    return {static_cast<std::byte*>(begin), room};
  }
  struct Arena {
    std::byte* memory = nullptr;
    std::size_t size = 0;
    ~Arena() { release(); }
    void release() { ::operator delete (memory, std::align_val_t{64}); }
  };
  thread_local Arena arena;
  if (arena.size < bytes || !arena.memory) {
    arena.release();
    arena.memory = nullptr;
    arena.size = 0;
    arena.memory = static_cast<std::byte*>(::operator new (bytes + 64, std::align_val_t{64}));
    arena.size = bytes + 64;
  }
  return {arena.memory, arena.size};
}

}  // namespace fovea
