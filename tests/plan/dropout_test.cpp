// Dropout where pieces of keys begin and end anywhere, and a row has more keys than one vector of decisions.
#include <gtest/gtest.h>

#include <string>

#include "fovea/attention/masks.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

TEST(Dropout, EveryKernelDropsTheWeightsOfTheReference) {
  Case c;
  c.spec.dropout.rate = 0.25;
  for (const std::int64_t queries : {3, 70}) {
    c.shape = {.batch = 2,
               .num_query_heads = 2,
               .num_kv_heads = 1,
               .query_len = queries,
               .key_len = 300,
               .head_dim = 16,
               .value_dim = 16};
    for (const Mask& mask : {Mask(Everything{}), Causal{} & SlidingWindow{.lookback = 37}}) {
      c.spec.mask = mask;
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        const Operands operands(c, dtype);
        const Results want = run_case(c, operands, dtype, "reference");
        for (const KernelInfo& info : instruction_sets()) {
          if (!info.available || info.isa == "reference") continue;
          const Results got = run_case(c, operands, dtype, info.isa);
          // One weight dropped in another place is off by a third of itself, some hundredths of an output.
          const double tolerance = dtype == DType::bf16 ? 0x1p-6 : 0x1p-16;
          const auto all = got.all(), exact = want.all();
          for (std::size_t n = 0; n < all.size(); ++n)
            expect_near(all[n].second, exact[n].second, tolerance, info.isa + " " + all[n].first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::testing
