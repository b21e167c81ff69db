// The shortest way from Python to the engine, for calls that bring a query, a key and a value of one library
// and nothing else. Its cost is what a call with little to compute costs: the longer way of plan.cpp, on
// which Python splits and checks any spec with any argument, takes some 40 µs.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "fovea/plan/plan.h"
#include "interrupt.h"
#include "module.h"

namespace fovea::python {
namespace {

using Sizes = std::array<std::int64_t, 8>;  // those of AttentionShape without hidden, in its order

// Calls of one spec. Every method returns None where it does not serve the arrays; the longer way then serves
// them, or says what is wrong with them.
class PlainCalls {
 public:
  // plan_for(sizes, dtype) makes a plan. empty_like(x) makes an array with the order of axes that x has in
  // memory.
  // With `grouped` a key's head may serve several heads of the query.
  PlainCalls(nb::callable plan_for, nb::callable empty_like, bool grouped)
      : plan_for_(std::move(plan_for)), empty_like_(std::move(empty_like)), grouped_(grouped) {}

  nb::object attend(nb::handle query, nb::handle key, nb::handle value, std::optional<std::int64_t> offset) {
    Call call(query, key, value, offset);
    const std::optional<AttentionPlan> plan = plan_of(call);
    if (!plan) return nb::none();
    const New output = like(call, query, call.inputs.query);
    interruptible([&](Executor& executor) {
      fovea::attend(*plan, call.inputs, {.output = output.view}, {.executor = &executor});
    });
    return output.array;
  }

  // (output, log-sum-exp)
  nb::object attend_recorded(nb::handle query, nb::handle key, nb::handle value,
                             std::optional<std::int64_t> offset) {
    Call call(query, key, value, offset);
    const std::optional<AttentionPlan> plan = plan_of(call);
    if (!plan) return nb::none();
    const New output = like(call, query, call.inputs.query);
    const Shape& q = call.inputs.query.shape();
    const DType wide = call.inputs.query.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const New log_sum_exp = new_array(*call.library, wide, Shape{q[0], q[1], q[2]});
    interruptible([&](Executor& executor) {
      fovea::attend(*plan, call.inputs, {.output = output.view, .log_sum_exp = log_sum_exp.view},
                    {.executor = &executor});
    });
    return nb::make_tuple(output.array, log_sum_exp.array);
  }

  // The derivatives by query, key and value.
  nb::object gradients(nb::handle query, nb::handle key, nb::handle value, nb::handle output,
                       nb::handle log_sum_exp, nb::handle d_output, std::optional<std::int64_t> offset) {
    Call call(query, key, value, offset);
    const std::optional<AttentionPlan> plan = plan_of(call);
    if (!plan || exchange_of(d_output) != call.library) return nb::none();
    const AttentionLoss loss{.output = call.arrays.read(output, "output"),
                             .log_sum_exp = call.arrays.read(log_sum_exp, "log_sum_exp"),
                             .d_output = call.arrays.read(d_output, "d_output")};
    if (!is_operand(loss.d_output) || loss.d_output.shape() != loss.output.shape()) return nb::none();
    const New d_query = like(call, query, call.inputs.query), d_key = like(call, key, call.inputs.key),
              d_value = like(call, value, call.inputs.value);
    const AttentionGradients found{.query = d_query.view, .key = d_key.view, .value = d_value.view};
    interruptible([&](Executor& executor) {
      fovea::attend_backward(*plan, call.inputs, loss, found, {.executor = &executor});
    });
    return nb::make_tuple(d_query.array, d_key.array, d_value.array);
  }

 private:
  using New = NewArray;

  // The arrays as the engine takes them. `library` is nullptr where the longer way must serve the call.
  struct Call {
    Arrays arrays{"attention"};
    AttentionInputs inputs;
    const ExchangeFunctions* library = nullptr;

    Call(nb::handle query, nb::handle key, nb::handle value, std::optional<std::int64_t> offset) {
      const ExchangeFunctions* functions = exchange_of(query);
      if (!functions || exchange_of(key) != functions || exchange_of(value) != functions) return;
      try {
        inputs.query = arrays.read(query, "query");
        inputs.key = arrays.read(key, "key");
        inputs.value = arrays.read(value, "value");
      } catch (const InvalidArgument&) {
        return;
      }
      inputs.query_offset = offset;
      if (fits()) library = functions;
    }
    bool fits() const {
      const ConstTensorView &q = inputs.query, &k = inputs.key, &v = inputs.value;
      if (!is_operand(q) || !is_operand(k) || !is_operand(v)) return false;
      return k.dtype() == q.dtype() && v.dtype() == q.dtype() && k.size(0) == q.size(0) &&
             v.size(0) == q.size(0) && k.size(1) > 0 && v.size(1) == k.size(1) &&
             q.size(1) % k.size(1) == 0 && v.size(2) == k.size(2) && k.size(3) == q.size(3) &&
             v.size(3) == q.size(3);
    }
    Sizes sizes() const {
      const ConstTensorView &q = inputs.query, &k = inputs.key;
      return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), inputs.value.size(3),
              k.size(3)};
    }
  };
  struct Known {
    Sizes sizes;
    DType dtype;
    AttentionPlan plan;
  };

  static bool is_operand(const ConstTensorView& x) {
    return x.rank() == 4 && x.shape().count() > 0 && (x.stride(3) == 1 || x.size(3) == 1);
  }

  std::optional<AttentionPlan> plan_of(const Call& call) {
    if (!call.library) return std::nullopt;
    if (!grouped_ && call.inputs.query.size(1) != call.inputs.key.size(1)) return std::nullopt;
    const Sizes sizes = call.sizes();
    const DType dtype = call.inputs.query.dtype();
    for (const Known& known : known_) {
      if (known.sizes == sizes && known.dtype == dtype) return known.plan;
    }
    const nb::tuple listed =
        nb::make_tuple(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7]);
    const nb::object made = plan_for_(listed, nb::str(to_string(dtype).data()));
    AttentionPlan plan = nb::cast<AttentionPlan>(made);
    // A model has few shapes; where lengths grow with each call, Python's own cache of plans serves.
    constexpr std::size_t most = 8;
    if (known_.size() < most)
      known_.push_back({sizes, dtype, plan});
    else
      known_[next_++ % most] = {sizes, dtype, plan};
    return plan;
  }

  // An array for the output beside the query, or for the gradient of x.
  New like(Call& call, nb::handle x, const ConstTensorView& view) {
    if (is_row_major(view)) return new_array(*call.library, view.dtype(), view.shape());
    New made{empty_like_(x), {}};
    made.view = call.arrays.write(made.array, "output");
    return made;
  }
  static bool is_row_major(const ConstTensorView& x) {
    std::int64_t step = 1;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      if (x.size(axis) != 1 && x.stride(axis) != step) return false;
      step *= x.size(axis);
    }
    return true;
  }

  nb::callable plan_for_, empty_like_;
  bool grouped_ = true;
  std::vector<Known> known_;
  std::size_t next_ = 0;
};

}  // namespace

void bind_plain_calls(nb::module_& module) {
  nb::class_<PlainCalls>(module, "PlainCalls",
                         "Calls of one spec that bring query, key and value alone. None: not served here.")
      .def(nb::init<nb::callable, nb::callable, bool>(), nb::arg("plan_for"), nb::arg("empty_like"),
           nb::arg("grouped"))
      .def("attend", &PlainCalls::attend, nb::arg("query"), nb::arg("key"), nb::arg("value"),
           nb::arg("query_offset").none())
      .def("attend_recorded", &PlainCalls::attend_recorded, nb::arg("query"), nb::arg("key"),
           nb::arg("value"), nb::arg("query_offset").none())
      .def("gradients", &PlainCalls::gradients, nb::arg("query"), nb::arg("key"), nb::arg("value"),
           nb::arg("output"), nb::arg("log_sum_exp"), nb::arg("d_output"), nb::arg("query_offset").none());
}

}  // namespace fovea::python
