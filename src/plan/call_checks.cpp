#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/packed.h"

namespace fovea {
namespace {

// If a matrix is left out and then stands for the identity, its two sizes must be equal.
void check_absent(const char* function, const DeclaredArgument& argument, const ArgumentSizes& sizes,
                  DType dtype) {
  using Absent = ArgumentDeclaration::Absent;
  const ArgumentDeclaration& declaration = argument.declaration;
  if (declaration.absent == Absent::refused) {
    throw InvalidArgument(function, argument.name,
                          std::string(to_string(dtype)) + " " + shape_text(declaration, sizes), "nothing");
  }
  if (declaration.absent != Absent::identity) return;
  const std::int64_t out = declaration.axes[0].of(sizes), in = declaration.axes[1].of(sizes);
  if (out != in) {
    throw InvalidArgument(function, argument.name,
                          "a matrix " + shape_text(declaration, sizes) +
                              ", or operands already projected to hidden " + std::to_string(out),
                          "nothing, with operands of " + std::to_string(in) + " elements");
  }
}

template <class T>
void check_finite(const char* function, const std::string& name, const ConstTensorView& view) {
  for (std::int64_t n = 0; n < view.count(); ++n) {
    if (const T element = view.data<T>()[n]; !std::isfinite(element))
      throw InvalidArgument(function, name, "finite numbers", std::to_string(element));
  }
}

void check_layout(const char* function, const std::string& name, ArgumentDeclaration::Layout layout,
                  const ConstTensorView& view) {
  using Layout = ArgumentDeclaration::Layout;
  if (layout == Layout::contiguous) check_is_contiguous(function, name, view);
  if (layout == Layout::contiguous_rows && !innermost_contiguous(view))
    throw InvalidArgument(function, name, "a contiguous innermost axis",
                          "stride " + std::to_string(view.stride(-1)));
}

}  // namespace

void check_arguments(const char* function, const AttentionPlan::Impl& plan, const CallSizes& call_sizes,
                     const Call& call) {
  const DType dtype = plan.compute_dtype();
  const ArgumentSizes sizes = argument_sizes(plan, call_sizes);
  for (int n = 0; n < call.arguments.count(); ++n) {
    const DeclaredArgument& argument = plan.arguments[static_cast<std::size_t>(n)];
    const ConstTensorView& view = call.arguments[n];
    if (!is_given(view)) {
      check_absent(function, argument, sizes, dtype);
      continue;
    }
    if (view.dtype() != dtype || !fits(argument.declaration, sizes, view.shape())) {
      throw InvalidArgument(function, argument.name,
                            std::string(to_string(dtype)) + " " + shape_text(argument.declaration, sizes),
                            described(view));
    }
    if (view.empty() && view.count() > 0)
      throw InvalidArgument(function, argument.name, "data of " + to_string(view.shape()), "a null pointer");
    check_layout(function, argument.name, argument.declaration.layout, view);
    if (!argument.declaration.finite) continue;
    with_wide_type(dtype, [&](auto t) { check_finite<decltype(t)>(function, argument.name, view); });
  }
}

namespace {

// The sizes of the call. The number of keys comes from the key, from the value, or from the argument that
// replaces keys.
CallSizes sizes_of(const AttentionPlan::Impl& plan, const Call& call) {
  const AttentionInputs& inputs = call.inputs;
  if (!inputs.cache.empty()) return {inputs.query.size(0), inputs.query.size(2), 0, true};
  const int rows = plan.score().key_rows;
  const std::int64_t keys = rows < 0                          ? inputs.key.size(2)
                            : plan.shape.value_dim > 0        ? inputs.value.size(2)
                            : call.arguments[rows].rank() > 0 ? call.arguments[rows].size(0)
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

// A Site has 32 bits.
void check_offset(const char* function, const char* argument, std::int64_t offset) {
  constexpr std::int64_t farthest = std::int64_t{1} << 30;
  if (offset > farthest || offset < -farthest)
    throw InvalidArgument(function, argument, "an offset within 2^30", std::to_string(offset));
}

void check_offsets(const char* function, const AttentionInputs& inputs, std::int64_t batch) {
  check_offset(function, "query_offset", inputs.query_offset.value_or(0));
  if (inputs.query_offsets.empty()) return;
  const auto count = static_cast<std::int64_t>(inputs.query_offsets.size());
  if (inputs.query_offset) {
    throw InvalidArgument(
        function, "query_offsets", "none, because query_offset is given",
        std::to_string(count) + " offsets, and query_offset " + std::to_string(*inputs.query_offset));
  }
  if (count != batch) {
    throw InvalidArgument(function, "query_offsets",
                          "as many offsets as batch entries, " + std::to_string(batch),
                          std::to_string(count));
  }
  for (const std::int64_t offset : inputs.query_offsets) check_offset(function, "query_offsets", offset);
}

void check_key_lengths(const char* function, const AttentionInputs& inputs, const CallSizes& sizes) {
  if (static_cast<std::int64_t>(inputs.key_lengths.size()) != sizes.batch) {
    throw InvalidArgument(function, "key_lengths",
                          "as many lengths as batch entries, " + std::to_string(sizes.batch),
                          std::to_string(inputs.key_lengths.size()));
  }
  const PackedBatch packed(inputs);
  for (std::int64_t n = 0; n < sizes.batch; ++n) {
    const std::int64_t length = inputs.key_lengths[static_cast<std::size_t>(n)],
                       most = packed ? packed[n].sizes.key_len : sizes.key_len;
    if (length < 0 || length > most) {
      throw InvalidArgument(function, "key_lengths", "lengths in [0, key_len " + std::to_string(most) + "]",
                            std::to_string(length));
    }
  }
}

}  // namespace

CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const Call& call) {
  const AttentionInputs& inputs = call.inputs;
  const bool keyless = plan.score().key_rows >= 0;
  const AttentionShape& s = plan.shape;
  const auto four = [&](const ConstTensorView& view, const char* argument) {
    check_four_axes(function, argument, view, "[batch, heads, length, dim]");
  };
  const auto none = [&](const ConstTensorView& view, const char* argument, const char* why) {
    if (view) throw InvalidArgument(function, argument, why, described(view));
  };
  const bool cached = !inputs.cache.empty();
  four(inputs.query, "query");
  if (!keyless && !cached) four(inputs.key, "key");
  if (s.value_dim > 0 && !cached) four(inputs.value, "value");
  const CallSizes given = sizes_of(plan, call);
  const CallSizes sizes = cached ? check_cache(function, plan, inputs, given)
                          : PackedBatch(inputs)
                              ? check_packed(function, plan, inputs, given, !keyless || s.value_dim > 0)
                              : given;
  check_capacity(function, "query", sizes.batch, s.batch, "a batch");
  check_capacity(function, "query", sizes.query_len, s.query_len, "a query_len");
  check_capacity(function, "key", sizes.key_len, s.key_len, "a key_len");
  check_view(function, "query", inputs.query, plan.dtype,
             {given.batch, s.num_query_heads, given.query_len, s.head_dim});
  if (cached || keyless)
    none(inputs.key, "key", cached ? "nothing beside cache" : "nothing: this score reads no keys");
  else
    check_view(function, "key", inputs.key, plan.dtype,
               {given.batch, s.num_kv_heads, given.key_len, s.key_dim});
  if (cached || s.value_dim == 0)
    none(inputs.value, "value",
         cached ? "nothing beside cache" : "nothing: the plan has no values (value_dim 0)");
  else
    check_view(function, "value", inputs.value, plan.dtype,
               {given.batch, s.num_kv_heads, given.key_len, s.value_dim});
  check_arguments(function, plan, sizes, call);
  if (plan.spec.mask.node().needs_key_lengths())
    check_key_lengths(function, inputs, sizes);
  else if (!inputs.key_lengths.empty())
    throw InvalidArgument(function, "key_lengths",
                          "nothing: the mask " + to_string(plan.spec.mask) + " reads no lengths of a call",
                          std::to_string(inputs.key_lengths.size()) + " numbers");
  check_offsets(function, inputs, sizes.batch);
  if (cached) check_kept(function, plan, inputs);
  return sizes;
}

CallSizes result_sizes(const AttentionInputs& inputs, const CallSizes& sizes) {
  return inputs.query_starts.empty() ? sizes : CallSizes{1, inputs.query_starts.back(), sizes.key_len};
}

ArgumentSizes argument_sizes(const AttentionPlan::Impl& plan, const CallSizes& sizes) {
  return {.batch = sizes.batch,
          .num_query_heads = plan.shape.num_query_heads,
          .query_len = sizes.query_len,
          .key_len = sizes.key_len,
          .query_dim = plan.shape.head_dim,
          .key_dim = plan.shape.key_dim,
          .hidden = plan.shape.hidden};
}

template <class View>
Resolved<View>::Resolved(const char* function, const char* prefix, const AttentionPlan::Impl& plan,
                         const NamedArguments<View>& given)
    : count_(static_cast<int>(plan.arguments.size())) {
  std::fill_n(views_.begin(), count_, nullptr);
  int next = 0;  // makes arguments in the plan's order found at once
  for (const NamedArgument<View>& argument : given.all()) {
    int tried = 0;
    while (tried < count_ && plan.arguments[static_cast<std::size_t>(next)].name != argument.name) {
      ++tried;
      next = next + 1 == count_ ? 0 : next + 1;
    }
    if (tried == count_) {
      std::string known;
      for (const DeclaredArgument& one : plan.arguments) known += (known.empty() ? "" : ", ") + one.name;
      throw InvalidArgument(function, prefix + argument.name,
                            known.empty() ? "no argument: this spec has none" : "one of " + known,
                            "an argument that this spec does not have");
    }
    const View*& to = views_[static_cast<std::size_t>(next)];
    if (to) throw InvalidArgument(function, prefix + argument.name, "this argument once", "twice");
    to = &argument.view;
  }
}
template class Resolved<ConstTensorView>;
template class Resolved<TensorView>;

Shape weights_shape(const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    std::span<const std::int64_t> heads, std::span<const std::int64_t> rows) {
  return {sizes.batch, heads.empty() ? plan.shape.num_query_heads : static_cast<std::int64_t>(heads.size()),
          rows.empty() ? sizes.query_len : static_cast<std::int64_t>(rows.size()), sizes.key_len};
}

void check_all_rows(const char* function, const AttentionInputs& inputs,
                    std::span<const std::int64_t> weight_rows) {
  if (!weight_rows.empty() && PackedBatch(inputs))
    throw InvalidArgument(
        function, "weight_rows",
        "none: a packed batch, or one whose keys are in a cache, gives the weights of all rows",
        std::to_string(weight_rows.size()) + " rows");
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
  check_written(function, argument, view, dtype, shape);
  for (const ConstTensorView* input : {&inputs.query, &inputs.key, &inputs.value}) {
    if (*input && extents_overlap(view, *input))
      throw InvalidArgument(function, argument, "memory apart from query, key and value",
                            "overlapping memory");
  }
}

}  // namespace fovea
