// Counts every operator new of this program: with a caller's workspace, a call allocates nothing. The
// reference kernel is excepted.
#include <gtest/gtest.h>

#include "core/counted_new.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/executor.h"
#include "plan/case_table.h"

namespace fovea::testing {
namespace {

TEST(Allocation, NoneWithACallersWorkspace) {
  for (const KernelInfo& info : instruction_sets()) {
    const std::string kernel = info.isa;
    // The reference is written for readers and may allocate.
    if (!info.available || kernel == "reference") continue;
    for (const Case& c : case_table()) {
      // Rows of these masks have more spans than the object holds; a path through a tree is a list.
      const std::string mask = to_string(c.spec.mask);
      bool many = false;
      for (const char* name : {"strided", "dilated", "blocks", "tree", "predicate"})
        many = many || mask.find(name) != std::string::npos;
      if (many) continue;
      const AttentionPlan plan =
          make_plan(c.spec, c.shape, {.precision = Precision::higher, .kernel = kernel});
      const auto pool = make_thread_pool(2);
      std::vector<std::byte> memory(
          std::max(workspace_bytes(plan, 2), backward_workspace_bytes(plan, 2, c.loss_of())) + 63);
      const Operands o(c, DType::f32);
      const AttentionInputs in = o.inputs(c);
      const Tensor out(DType::f32, o.d_output.shape()),
          lse(DType::f32, {c.shape.batch, c.shape.num_query_heads, c.shape.query_len}),
          d_query(DType::f32, o.query.shape()), d_value(DType::f32, o.value.shape());
      const AttentionGradients g =
          c.score_gradients ? AttentionGradients{.query = d_query} : AttentionGradients{.value = d_value};
      const auto call = [&] {
        attend(plan, in, {.output = out, .log_sum_exp = lse}, {pool.get(), memory});
        attend_backward(plan, in, o.loss(c, out, lse), g, {pool.get(), memory});
      };
      // A thread's lists of tiles grow to the largest block that the thread meets, and chance decides which
      // thread meets which block. So the first calls may allocate. A call that allocates by design never
      // stops.
      std::int64_t fewest = 1;
      for (int attempt = 0; attempt < 50 && fewest > 0; ++attempt) {
        const std::int64_t before = counting::blocks;
        call();
        fewest = std::min(fewest, counting::blocks - before);
      }
      ASSERT_EQ(fewest, 0) << c.name << " " << kernel;
    }
  }
}

// Large entries run by all threads, small ones, and gradients of arguments that entries share.
TEST(Allocation, NoneInAPackedCallWithACallersWorkspace) {
  const std::vector<std::int64_t> starts{0, 300, 301, 310, 310, 330, 360, 400};
  const auto entries = static_cast<std::int64_t>(starts.size()) - 1;
  const AttentionPlan plan = make_plan({.mods = {AlibiBias{}}, .mask = Causal{}}, {.batch = entries,
                                                                                   .num_query_heads = 2,
                                                                                   .num_kv_heads = 2,
                                                                                   .query_len = 300,
                                                                                   .key_len = 300,
                                                                                   .head_dim = 16,
                                                                                   .value_dim = 16});
  const auto pool = make_thread_pool(2);
  std::vector<std::byte> memory(std::max(workspace_bytes(plan, 2), backward_workspace_bytes(plan, 2)) + 63);
  const Tensor x = random_tensor(DType::f32, {1, 2, starts.back(), 16}, 1), output(DType::f32, x.shape()),
               sums(DType::f32, {1, 2, starts.back()}), dx(DType::f32, x.shape()),
               slopes = random_tensor(DType::f32, {1, 2, 1, 1}, 2), d_slopes(DType::f32, slopes.shape());
  const AttentionInputs in{.query = x,
                           .key = x,
                           .value = x,
                           .arguments = {{"mods[0].slope", slopes}},
                           .query_starts = starts,
                           .key_starts = starts};
  AttentionGradients gradients{.query = dx};
  gradients.arguments.set("mods[0].slope", d_slopes);
  std::int64_t fewest = 1;
  for (int attempt = 0; attempt < 50 && fewest > 0; ++attempt) {
    const std::int64_t before = counting::blocks;
    attend(plan, in, {.output = output, .log_sum_exp = sums}, {pool.get(), memory});
    attend_backward(plan, in, output, sums, x, gradients, {pool.get(), memory});
    fewest = std::min(fewest, counting::blocks - before);
  }
  EXPECT_EQ(fewest, 0);
}

// Forks that diverge after 700, and again after 1,500 rows.
TEST(Allocation, NoneForEntriesThatShareKeys) {
  constexpr std::int64_t heads = 2, dim = 16;
  KvCache cache({.layers = {{.num_kv_heads = heads, .head_dim = dim, .value_dim = dim}}});
  const auto add = [&](Sequence& to, std::int64_t rows, std::uint64_t seed) {
    cache.reserve(to, rows);
    cache.append(0, to, Tensor::normal({1, heads, rows, dim}, seed),
                 Tensor::normal({1, heads, rows, dim}, seed + 1));
    cache.commit(to);
  };
  std::vector<Sequence> sequences;
  sequences.push_back(cache.start());
  add(sequences[0], 700, 1);
  sequences.push_back(cache.fork(sequences[0]));
  add(sequences[0], 800, 3);
  add(sequences[1], 900, 5);
  for (std::size_t n = 0; n < 2; ++n) {
    sequences.push_back(cache.fork(sequences[n]));
    add(sequences[n], 300, 7 + 4 * n);
    add(sequences.back(), 200, 9 + 4 * n);
  }
  std::vector<KeyValueView> views;
  for (const Sequence& sequence : sequences) views.push_back(cache.view(0, sequence));
  const auto count = static_cast<std::int64_t>(views.size());
  const AttentionPlan plan = make_plan({.mask = Causal{}}, {.batch = count,
                                                            .num_query_heads = heads,
                                                            .num_kv_heads = heads,
                                                            .query_len = 1,
                                                            .key_len = 2000,
                                                            .head_dim = dim});
  const auto pool = make_thread_pool(2);
  std::vector<std::byte> memory(workspace_bytes(plan, 2) + 63);
  const Tensor query = Tensor::normal({count, heads, 1, dim}, 20), output(DType::f32, {count, heads, 1, dim});
  const AttentionInputs in{.query = query, .cache = views};
  std::int64_t fewest = 1;
  for (int attempt = 0; attempt < 50 && fewest > 0; ++attempt) {
    const std::int64_t before = counting::blocks;
    attend(plan, in, {.output = output}, {pool.get(), memory});
    fewest = std::min(fewest, counting::blocks - before);
  }
  EXPECT_EQ(fewest, 0);
}

}  // namespace
}  // namespace fovea::testing
