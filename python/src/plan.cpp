// Plans and their calls. Python passes arrays by name: "query", "score.W", "normalizer.sink",
// "mods[0].slope". A gradient has the name of its array.
#include "fovea/plan/plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "fovea/attention/argument.h"
#include "fovea/attention/expression.h"
#include "interrupt.h"
#include "module.h"

namespace fovea::python {
namespace {

using Integers = std::vector<std::int64_t>;

// The arrays of a call as views, by name. The binding takes each array that the plan has. done() throws if an
// array is left, because the plan has none of that name.
template <class View>
class Named {
 public:
  Named(Arrays& arrays, nb::dict given) : arrays_(arrays) {
    for (const auto& [key, value] : given) {
      const auto name = nb::cast<std::string>(key);
      if constexpr (std::is_same_v<View, TensorView>)
        views_[name] = arrays.write(value, name);
      else
        views_[name] = arrays.read(value, name);
    }
  }
  View take(const std::string& name) {
    const auto found = views_.find(name);
    if (found == views_.end()) return {};
    const View view = found->second;
    views_.erase(found);
    return view;
  }
  // Takes the plan's arguments that the call gives.
  void take_arguments(const AttentionPlan& plan, NamedArguments<View>& to) {
    for (const DeclaredArgument& argument : plan.arguments()) {
      View view = take(argument.name);
      if (view && !argument.declaration.written.empty()) view = as_four_axes(arrays_, view, argument);
      if (view || view.rank() > 0) to.set(argument.name, view);
    }
  }
  void done() const {
    if (!views_.empty())
      throw InvalidArgument(arrays_.function(), views_.begin()->first, "nothing: the plan has no such array",
                            "an array");
  }

 private:
  Arrays& arrays_;
  std::map<std::string, View> views_;
};

// The AttentionInputs of a call, taken from its arrays.
struct Inputs {
  AttentionInputs call;

  Inputs(const AttentionPlan& plan, Named<ConstTensorView>& arrays) {
    call.query = arrays.take("query");
    call.key = arrays.take("key");
    call.value = arrays.take("value");
    arrays.take_arguments(plan, call.arguments);
  }
};

// The Python package writes these texts from the caller's numbers. So an error names the mod's place in the
// caller's list, not the text.
void parse_mods(const std::string& list, const std::vector<std::string>& texts, Mods& mods) {
  for (const std::string& text : texts) {
    try {
      mods.push_back(parse_mod(text));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("make_plan", list + "[" + std::to_string(mods.size()) + "]", error.expected(),
                            error.got());
    }
  }
}

AttentionPlan make(const std::string& score, std::optional<double> scale,
                   const std::vector<std::string>& mods, const Mask& mask, const std::string& normalizer,
                   const std::vector<std::string>& weight_mods, double dropout,
                   const std::array<std::int64_t, 9>& sizes, const std::string& dtype,
                   const std::string& precision, const std::string& kernel, bool derivatives, bool parts) {
  AttentionSpec spec{.score = parse_score(score),
                     .scale = scale,
                     .mods = {},
                     .mask = mask,
                     .normalizer = parse_normalizer(normalizer),
                     .weight_mods = {},
                     .dropout = {dropout}};
  parse_mods("mods", mods, spec.mods);
  parse_mods("weight_mods", weight_mods, spec.weight_mods);
  const AttentionShape shape{.batch = sizes[0],
                             .num_query_heads = sizes[1],
                             .num_kv_heads = sizes[2],
                             .query_len = sizes[3],
                             .key_len = sizes[4],
                             .head_dim = sizes[5],
                             .value_dim = sizes[6],
                             .key_dim = sizes[7],
                             .hidden = sizes[8]};
  return make_plan(spec, shape,
                   {.dtype = dtype_named(dtype),
                    .precision = parse_precision(precision),
                    .kernel = kernel,
                    .derivatives = derivatives ? Derivatives::required : Derivatives::where_defined,
                    .keys = parts ? Keys::part : Keys::all});
}

struct CallOptions {
  std::optional<std::int64_t> query_offset;
  Integers query_offsets, query_starts, key_starts, key_lengths, weight_heads, weight_rows;
  std::uint64_t dropout_seed = 0, sample_seed = 0;

  void set(Inputs& inputs) const {
    inputs.call.query_offset = query_offset;
    inputs.call.query_offsets = query_offsets;
    inputs.call.query_starts = query_starts;
    inputs.call.key_starts = key_starts;
    inputs.call.key_lengths = key_lengths;
    inputs.call.dropout_seed = dropout_seed;
    inputs.call.sample_seed = sample_seed;
  }
};

void run(const AttentionPlan& plan, const std::string& function, const nb::dict& given,
         const nb::dict& wanted, const CallOptions& options, const std::vector<const KeyValueView*>& cache) {
  Arrays arrays(function);
  Named<ConstTensorView> in(arrays, given);
  Named<TensorView> out(arrays, wanted);
  Inputs inputs(plan, in);
  options.set(inputs);
  std::vector<KeyValueView> views;  // copies, which hold the rows while the lock is released
  for (const KeyValueView* view : cache) views.push_back(*view);
  inputs.call.cache = views;
  const AttentionOutputs outputs{.output = out.take("output"),
                                 .log_sum_exp = out.take("log_sum_exp"),
                                 .weights = out.take("weights"),
                                 .weight_heads = options.weight_heads,
                                 .weight_rows = options.weight_rows};
  in.done();
  out.done();
  interruptible([&](Executor& executor) { attend(plan, inputs.call, outputs, {.executor = &executor}); });
}

void run_backward(const AttentionPlan& plan, const std::string& function, const nb::dict& given,
                  const nb::dict& loss_given, const nb::dict& wanted, const CallOptions& options) {
  Arrays arrays(function);
  Named<ConstTensorView> in(arrays, given), of(arrays, loss_given);
  Named<TensorView> out(arrays, wanted);
  Inputs inputs(plan, in);
  options.set(inputs);
  const AttentionLoss loss{.output = of.take("output"),
                           .log_sum_exp = of.take("log_sum_exp"),
                           .d_output = of.take("d_output"),
                           .d_weights = of.take("d_weights"),
                           .weight_heads = options.weight_heads,
                           .weight_rows = options.weight_rows,
                           .advantage = of.take("advantage")};
  AttentionGradients gradients{
      .query = out.take("query"), .key = out.take("key"), .value = out.take("value")};
  out.take_arguments(plan, gradients.arguments);
  in.done();
  of.done();
  out.done();
  interruptible([&](Executor& executor) {
    attend_backward(plan, inputs.call, loss, gradients, {.executor = &executor});
  });
}

// The names of the arrays that a call may pass besides query, key and value: "score.W", "mods[0].slope".
std::vector<std::string> argument_names(const AttentionPlan& plan) {
  std::vector<std::string> names;
  for (const DeclaredArgument& argument : plan.arguments()) names.push_back(argument.name);
  return names;
}

}  // namespace

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    if (name == to_string(dtype)) return dtype;
  }
  throw InvalidArgument("make_plan", "dtype", "f32, f64, bf16 or f16", name);
}

void bind_plan(nb::module_& module) {
  nb::class_<CallOptions>(module, "CallOptions", "What a call brings besides arrays.")
      .def(
          "__init__",
          [](CallOptions* self, std::optional<std::int64_t> query_offset, Integers query_offsets,
             Integers query_starts, Integers key_starts, Integers key_lengths, Integers weight_heads,
             Integers weight_rows, std::uint64_t dropout_seed, std::uint64_t sample_seed) {
            new (self) CallOptions{query_offset,
                                   std::move(query_offsets),
                                   std::move(query_starts),
                                   std::move(key_starts),
                                   std::move(key_lengths),
                                   std::move(weight_heads),
                                   std::move(weight_rows),
                                   dropout_seed,
                                   sample_seed};
          },
          nb::arg("query_offset").none() = nb::none(), nb::arg("query_offsets") = Integers{},
          nb::arg("query_starts") = Integers{}, nb::arg("key_starts") = Integers{},
          nb::arg("key_lengths") = Integers{}, nb::arg("weight_heads") = Integers{},
          nb::arg("weight_rows") = Integers{}, nb::arg("dropout_seed") = 0, nb::arg("sample_seed") = 0);

  nb::class_<AttentionPlan>(module, "Plan", "make_plan's result: a spec, a shape, and the kernel that runs.")
      .def_prop_ro("kernel", [](const AttentionPlan& plan) { return std::string(plan.kernel()); })
      .def_prop_ro("argument_names", argument_names)
      .def(
          "explain",
          [](const AttentionPlan& plan, const Integers& query_offsets) {
            return explain(plan, query_offsets);
          },
          nb::arg("query_offsets") = Integers{})
      .def("attend", run, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("options"),
           nb::arg("cache") = std::vector<const KeyValueView*>{})
      .def("attend_backward", run_backward, nb::arg("function"), nb::arg("inputs"), nb::arg("loss"),
           nb::arg("gradients"), nb::arg("options"));

  module.def(
      "make_plan",
      [](const std::string& score, std::optional<double> scale, const std::vector<std::string>& mods,
         const Mask& mask, const std::string& normalizer, const std::vector<std::string>& weight_mods,
         double dropout, const std::vector<std::int64_t>& sizes, const std::string& dtype,
         const std::string& precision, const std::string& kernel, bool derivatives, bool parts) {
        std::array<std::int64_t, 9> nine{};
        if (sizes.size() != nine.size())
          throw InvalidArgument("make_plan", "sizes", "9 sizes", std::to_string(sizes.size()));
        std::copy(sizes.begin(), sizes.end(), nine.begin());
        const nb::gil_scoped_release released;
        return make(score, scale, mods, mask, normalizer, weight_mods, dropout, nine, dtype, precision,
                    kernel, derivatives, parts);
      },
      nb::arg("score"), nb::arg("scale").none(), nb::arg("mods"), nb::arg("mask"), nb::arg("normalizer"),
      nb::arg("weight_mods"), nb::arg("dropout"), nb::arg("sizes"), nb::arg("dtype"), nb::arg("precision"),
      nb::arg("kernel"), nb::arg("derivatives"), nb::arg("parts"));

  module.def("list_kernels", [] {
    nb::list result;
    for (const KernelInfo& info : list_kernels())
      result.append(nb::make_tuple(info.isa, info.name, info.available));
    return result;
  });
}

}  // namespace fovea::python
