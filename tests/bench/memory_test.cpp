// Measurements in a separate process, and quantiles.
#include "bench/memory.h"

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>

#include "bench/timing.h"
#include "fovea/core/error.h"

namespace fovea::bench {
namespace {

TEST(OwnProcess, GivesItsNumbersAndKeepsNothing) {
  int here = 1;
  std::vector<double> many(100'000);  // more than a pipe holds
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i);
  EXPECT_EQ(in_own_process([&] {
              here = 2;
              return many;
            }),
            many);
  EXPECT_EQ(here, 1);
}

TEST(OwnProcess, ReportsItsFailure) {
  const auto said = [](const std::function<std::vector<double>()>& body) {
    try {
      in_own_process(body);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(said([]() -> std::vector<double> {
              throw std::runtime_error("no such thing");
            }).find("failed: no such thing"),
            std::string::npos);
  EXPECT_NE(said([]() -> std::vector<double> {
              std::raise(SIGKILL);
              return {};
            }).find("signal 9"),
            std::string::npos);
}

TEST(Timing, QuantilesOfAFewNumbers) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(quantile({5, 1, 4, 2, 3}, 0.25), 2);
  EXPECT_EQ(quantile({5, 1, 4, 2, 3}, 1), 5);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace fovea::bench
