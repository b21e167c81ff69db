// Spans of named work: what is inside which, what the totals add up to, and what a trace holds.
#include "fovea/core/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea {
namespace {

constexpr ProfileLabel outer{"outer", ProfilePart::other}, inner{"inner", ProfilePart::products};

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

const ProfileTotal* total_of(const std::vector<ProfileTotal>& totals, const ProfileLabel& label,
                             bool backward) {
  for (const ProfileTotal& total : totals) {
    if (total.label == &label && total.backward == backward) return &total;
  }
  return nullptr;
}

TEST(Profile, OwnTimeIsWithoutTheSpansInside) {
  Profile profile;
  for (int n = 0; n < 3; ++n) {
    const ProfileSpan a(outer);
    EXPECT_EQ(ProfileSpan::current(), &outer);
    pass(1);
    const ProfileSpan b(inner, {.multiply_adds = 10.0, .bytes = 4.0}, n == 2);
    EXPECT_EQ(ProfileSpan::current(), &inner);
    pass(2);
  }
  EXPECT_EQ(ProfileSpan::current(), nullptr);
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  const ProfileTotal *a = total_of(totals, outer, false), *forward = total_of(totals, inner, false),
                     *backward = total_of(totals, inner, true);
  ASSERT_TRUE(a && forward && backward);
  EXPECT_EQ(a->count, 3);
  EXPECT_EQ(forward->count, 2);
  EXPECT_EQ(backward->count, 1);
  EXPECT_EQ(forward->work.multiply_adds, 20.0);
  EXPECT_EQ(backward->work.bytes, 4.0);
  EXPECT_GE(forward->own, 0.004);
  EXPECT_GE(a->own, 0.003);
  // Own times add up to the outermost spans, to the rounding of sums of doubles.
  EXPECT_NEAR(a->own + forward->own + backward->own, a->seconds, 1e-9);
  EXPECT_LE(a->seconds, profile.seconds());
}

TEST(Profile, SpansOutsideAProfileAreNotRecorded) {
  { const ProfileSpan before(outer); }
  Profile profile;
  profile.stop();
  { const ProfileSpan behind(outer); }
  EXPECT_TRUE(profile.totals().empty());
  EXPECT_EQ(ProfileSpan::current(), nullptr);
}

TEST(Profile, OneRecordsAtATime) {
  Profile profile;
  EXPECT_THROW(Profile(), InvalidArgument);
  profile.stop();
  EXPECT_NO_THROW(Profile());
}

TEST(Profile, EachThreadHasItsOwnSpans) {
  const auto pool = make_thread_pool(3);
  Profile profile;
  pool->parallel_for(64, [](std::int64_t, int) {
    const ProfileSpan span(inner);
    pass(1);
  });
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  const ProfileTotal* total = total_of(totals, inner, false);
  ASSERT_TRUE(total);
  EXPECT_EQ(total->count, 64);
  EXPECT_GE(total->seconds, 0.064);
}

TEST(Profile, TheTraceSaysWhatIsMissing) {
  Profile profile(2);
  for (int n = 0; n < 5; ++n) const ProfileSpan span(inner, {.multiply_adds = 1e6}, n == 0);
  profile.stop();
  const std::string path = ::testing::TempDir() + "trace.json";
  profile.write_chrome_trace(path, {.multiply_adds_per_second = 1e9});
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(R"("name":"inner, backward","cat":"products","ph":"X")"), std::string::npos);
  EXPECT_NE(text.str().find(R"("multiply-adds":1e+06)"), std::string::npos);
  EXPECT_NE(text.str().find(R"("share of the limit":)"), std::string::npos);
  EXPECT_NE(text.str().find(R"("count":3)"), std::string::npos);
  EXPECT_THROW(profile.write_chrome_trace("/no/such/folder/trace.json"), FileError);
}

// The share of a span is that of the rate of what it multiplies.
TEST(Profile, EachKindOfProductHasItsOwnLimit) {
  static constexpr ProfileLabel f32{"f32", ProfilePart::products},
      bf16{"bf16", ProfilePart::products, ProfileOperands::bf16},
      int8{"int8", ProfilePart::products, ProfileOperands::int8};
  Profile profile;
  for (const ProfileLabel* label : {&f32, &bf16, &int8}) {
    const ProfileSpan span(*label, {.multiply_adds = 1e9, .bytes = 1.0});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  profile.stop();
  const auto shares = [&](const ProfileLimits& limits) {
    const std::string path = ::testing::TempDir() + "shares.json";
    profile.write_chrome_trace(path, limits);
    std::ifstream file(path);
    std::string names;
    for (std::string line; std::getline(file, line);) {
      for (const char* name : {"f32", "bf16", "int8"}) {
        const bool shared = line.find("share of the limit") != std::string::npos;
        if (line.find(std::string(R"("name":")") + name + '"') != std::string::npos && shared)
          names += std::string(name) + ' ';
      }
    }
    return names;
  };
  EXPECT_EQ(shares({.multiply_adds_per_second = 1e12, .bytes_per_second = 1e9}), "f32 ");
  EXPECT_EQ(shares({.multiply_adds_per_second = 1e12, .bf16_multiply_adds_per_second = 2e12}), "f32 bf16 ");
}

}  // namespace
}  // namespace fovea
