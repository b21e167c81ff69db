// Attention over caches in the middle of random operations (cache/model.h): the bits are those of the same
// rows gathered into one buffer, for every store, whatever was forked, dropped, permuted and loaded before.
#include <cstring>
#include <optional>

#include "cache/model.h"
#include "fovea/attention/masks.h"
#include "fovea/plan/plan.h"

namespace fovea::cache_model {
namespace {

// A sequence of a contiguous store with the rows of the view. Rows that the view lacks are NaN.
Sequence gathered(KvCache& to, const CacheLayer& layer, const KeyValueView& view) {
  const auto rows_of = [&](bool values) {
    const std::int64_t dim = values ? view.value_dim : view.head_dim,
                       row_stride = values ? view.value_row_stride : view.key_row_stride;
    const std::size_t bytes = static_cast<std::size_t>(dim) * size_of(layer.dtype);
    const auto element = static_cast<std::int64_t>(size_of(layer.dtype));
    Tensor rows(layer.dtype, {1, layer.num_kv_heads, view.length, dim});
    std::memset(rows.raw(), 0xff, rows.bytes());
    for (const KeyValueRun& run : view.runs) {
      const std::int64_t head_stride = values ? run.value_head_stride : run.key_head_stride;
      for (std::int64_t h = 0; h < layer.num_kv_heads; ++h) {
        for (std::int64_t r = 0; r < run.count; ++r)
          std::memcpy(rows.raw() + ((h * view.length + run.position + r) * dim) * element,
                      (values ? run.value : run.key) + (h * head_stride + r * row_stride) * element, bytes);
      }
    }
    return rows;
  };
  Sequence sequence = to.start();
  to.reserve(sequence, view.length);
  to.append(0, sequence, rows_of(false), rows_of(true));
  to.commit(sequence);
  return sequence;
}

// Causal, without the positions that the view lacks.
Mask mask_of(const KeyValueView& view, std::int64_t queries) {
  std::vector<bool> there(static_cast<std::size_t>(view.length));
  for (const KeyValueRun& run : view.runs) {
    for (std::int64_t r = 0; r < run.count; ++r) there[static_cast<std::size_t>(run.position + r)] = true;
  }
  if (std::find(there.begin(), there.end(), false) == there.end()) return Causal{};
  return Predicate(
      "kept", {.query_begin = view.length - queries, .query_end = view.length, .key_len = view.length},
      [&](const Site& at) { return at.key <= at.query && there[static_cast<std::size_t>(at.key)]; });
}

struct Result {
  Tensor output, log_sum_exp;
};

Result attend_to(const AttentionPlan& plan, const Tensor& query, std::span<const KeyValueView> views) {
  Result result{Tensor(query.dtype(), {query.size(0), query.size(1), query.size(2), plan.shape().value_dim}),
                Tensor(DType::f32, {query.size(0), query.size(1), query.size(2)})};
  attend(plan, {.query = query, .cache = views},
         {.output = result.output, .log_sum_exp = result.log_sum_exp});
  return result;
}

bool same_bits(const ConstTensorView& a, const ConstTensorView& b) {
  const Tensor x = Tensor::copy_of(a), y = Tensor::copy_of(b);
  return x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

class AttentionInRandomOperations : public ::testing::TestWithParam<int> {};

TEST_P(AttentionInRandomOperations, HasTheBitsOfAGatheredCopy) {
  const KvCacheOptions options = case_of(GetParam()).options;
  Driver driver(options, 101 + static_cast<std::uint64_t>(GetParam()));
  PhiloxStream random(7);
  std::int64_t compared = 0, shared = 0;
  const std::int64_t count = operations();
  for (std::int64_t n = 0; n < count && !::testing::Test::HasFailure(); ++n) {
    driver.step();
    if (n % 8 != 0) continue;
    for (std::size_t l = 0; l < options.layers.size(); ++l) {
      const CacheLayer layer = driver.cache().options().layers[l];
      if (std::holds_alternative<LastRow>(layer.store) || layer.value_dim == 0) continue;
      // All sequences in one call, some of which share pages, and each of them alone in a gathered copy.
      std::vector<KeyValueView> views;
      std::int64_t longest = 1;
      const std::int64_t queries = n % 24 == 0 ? 40 : 1 + random.next_below(3);
      for (const Live& live : driver.live()) {
        KeyValueView view = driver.cache().view(static_cast<std::int64_t>(l), live.sequence);
        if (view.length < queries) continue;
        longest = std::max(longest, view.length);
        views.push_back(std::move(view));
      }
      if (views.empty()) continue;
      const std::int64_t heads = layer.num_kv_heads * 2, batch = std::ssize(views);
      const Tensor wide = Tensor::normal({batch, heads, queries, layer.head_dim}, random.next_below(1000));
      Tensor query(layer.dtype, wide.shape());
      for (std::int64_t i = 0; i < wide.count(); ++i) {
        if (layer.dtype == DType::f32) query.data<float>()[i] = wide.data<float>()[i] / 64;
        if (layer.dtype == DType::bf16) query.data<bfloat16>()[i] = bfloat16(wide.data<float>()[i] / 64);
        if (layer.dtype == DType::f16) query.data<float16>()[i] = float16(wide.data<float>()[i] / 64);
      }
      const AttentionShape shape{.batch = batch,
                                 .num_query_heads = heads,
                                 .num_kv_heads = layer.num_kv_heads,
                                 .query_len = queries,
                                 .key_len = longest,
                                 .head_dim = layer.head_dim,
                                 .value_dim = layer.value_dim};
      const bool whole = std::all_of(views.begin(), views.end(), [](const KeyValueView& view) {
        std::int64_t end = 0;
        for (const KeyValueRun& run : view.runs) {
          if (run.position != end) return false;
          end += run.count;
        }
        return end == view.length;
      });
      std::optional<Result> together;
      if (whole)
        together = attend_to(make_plan({.mask = Causal{}}, shape, {.dtype = layer.dtype}), query, views);
      for (std::size_t b = 0; b < views.size(); ++b) {
        AttentionShape one = shape;
        one.batch = 1;
        one.key_len = views[b].length;
        const AttentionPlan plan =
            make_plan({.mask = mask_of(views[b], queries)}, one, {.dtype = layer.dtype});
        const Tensor own = Tensor::copy_of(query.view().slice(0, static_cast<std::int64_t>(b), 1));
        CacheLayer contiguous = layer;
        contiguous.store = Contiguous{};
        contiguous.values = CacheValues::own;
        KvCache copy({.layers = {contiguous}});
        const Sequence sequence = gathered(copy, layer, views[b]);
        const KeyValueView side_by_side = copy.view(0, sequence);
        const Result want = attend_to(plan, own, {&side_by_side, 1}),
                     got = attend_to(plan, own, {&views[b], 1});
        ASSERT_TRUE(same_bits(got.output, want.output)) << "operation " << n << ", layer " << l;
        ASSERT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << "operation " << n << ", layer " << l;
        ++compared;
        if (!together) continue;
        const auto entry = [&](const Tensor& x) {
          return x.view().slice(0, static_cast<std::int64_t>(b), 1);
        };
        ASSERT_TRUE(same_bits(entry(together->output), want.output)) << "operation " << n << ", layer " << l;
        ASSERT_TRUE(same_bits(entry(together->log_sum_exp), want.log_sum_exp))
            << "operation " << n << ", layer " << l;
        ++shared;
      }
    }
  }
  const std::string name = case_of(GetParam()).name;
  if (name == "states alone") return;
  EXPECT_GT(compared, 0);
  if (name.find("pages") == 0) EXPECT_GT(shared, 0);
}

INSTANTIATE_TEST_SUITE_P(Stores, AttentionInRandomOperations, ::testing::Range(0, cases));

}  // namespace
}  // namespace fovea::cache_model
