// Random operations on caches of every store beside plain lists of rows (cache/model.h): rows, ids, bytes,
// and who shares what.
#include "cache/model.h"

namespace fovea::cache_model {
namespace {

class RandomOperations : public testing::TestWithParam<int> {};

TEST_P(RandomOperations, HoldWhatPlainListsHold) {
  const Case c = case_of(GetParam());
  Driver driver(c.options, 1 + static_cast<std::uint64_t>(GetParam()));
  const std::int64_t count = operations();
  for (std::int64_t n = 0; n < count && !HasFatalFailure(); ++n) {
    driver.step();
    if (n % 64 == 0) driver.check_all();
  }
  driver.finish();
  EXPECT_GT(driver.loaded(), 0) << "no sequence was ever loaded";
  if (GetParam() == 2) EXPECT_GT(driver.found(), 0) << "no prefix was ever found again";
  if (GetParam() == 6) EXPECT_GT(driver.full(), 0) << "the limit was never reached";
}

INSTANTIATE_TEST_SUITE_P(Stores, RandomOperations, testing::Range(0, cases));

}  // namespace
}  // namespace fovea::cache_model
