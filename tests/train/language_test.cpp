// Training of language models: each learns, resumes with the same bits, and leaves its best weights.
#include "fovea/train/language.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fovea/core/executor.h"
#include "fovea/models/model_folder.h"

namespace fovea::train {
namespace {

constexpr std::int32_t words = 11;

// Each id follows from the one two places before it.
std::vector<std::int32_t> text(std::size_t length) {
  std::vector<std::int32_t> ids{3, 5};
  while (ids.size() < length) ids.push_back((ids[ids.size() - 2] * 2 + 1) % words);
  return ids;
}

models::LanguageModel tiny(std::string_view mixers) {
  return models::LanguageModel({.vocabulary = words,
                                .dim = 16,
                                .feed_forward = 16,
                                .heads = 2,
                                .layers = 2,
                                .dropout = 0.1f,
                                .mixers = models::parse_mixers(mixers, 2)},
                               1);
}

class LanguageTraining : public ::testing::TestWithParam<const char*> {
 protected:
  LanguageTraining()
      : folder_(std::filesystem::temp_directory_path() /
                ("fovea-language-" +
                 std::to_string(::testing::UnitTest::GetInstance()->current_test_info()->line()) +
                 std::string(GetParam()))) {
    std::filesystem::remove_all(folder_);
  }
  ~LanguageTraining() override { std::filesystem::remove_all(folder_); }

  LanguageOptions options(const char* name) const {
    return {.window = window(),
            .batch = 4,
            .schedule = nn::Constant{5e-3},
            .max_updates = 40,
            .validate_every = 8,
            .save_every = 5,
            .folder = (folder_ / name).string()};
  }
  // Behind 64 rows the first of them are few.
  static std::int64_t window() {
    const auto mixers = models::parse_mixers(GetParam(), 2);
    return std::ranges::all_of(mixers, models::reads_both_sides) ? 16 : 80;
  }
  std::filesystem::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Mixers, LanguageTraining,
                         ::testing::Values("gated_delta", "mamba2,attention", "gla,mamba", "linear,retention",
                                           "rwkv7", "performer", "pooled", "linformer,attention", "merging"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), ',', '_');
                           return text;
                         });

bool never() {
  return false;
}

// The windows of the text, in batches one after the other.
TEST(LanguageValidation, HasTheSumsOfItsWindows) {
  models::LanguageModel model = tiny("attention");
  constexpr std::int64_t window = 10, batch = 3;
  for (const std::size_t length : {0, 1, 2, 11, 12, 95}) {
    const std::vector<std::int32_t> ids = text(95);
    const std::span<const std::int32_t> part = std::span(ids).first(length);
    autograd::CrossEntropyStats expected;
    std::vector<std::vector<std::int32_t>> windows;
    const auto count = [&] {
      nn::Context context;
      autograd::CrossEntropyStats stats;
      if (!windows.empty()) model.loss(context, models::pad(windows), {}, &stats);
      expected += stats;
      windows.clear();
    };
    for (std::size_t begin = 0; begin + 1 < length; begin += window) {
      const auto of = part.subspan(begin, std::min<std::size_t>(window + 1, length - begin));
      windows.emplace_back(of.begin(), of.end());
      if (std::ssize(windows) == batch) count();
    }
    count();
    for (const int threads : {1, 2, 5}) {
      const auto pool = make_thread_pool(threads);
      set_default_executor(pool.get());
      const autograd::CrossEntropyStats stats = evaluate(model, part, window, batch);
      EXPECT_EQ(stats.log_likelihood, expected.log_likelihood) << length << ", " << threads;
      EXPECT_EQ(stats.tokens, expected.tokens) << length << ", " << threads;
      set_default_executor(nullptr);
    }
  }
  EXPECT_THROW(evaluate(model, text(20), 0, batch), InvalidArgument);
  EXPECT_THROW(evaluate(model, text(20), window, 0), InvalidArgument);
}

// Frequencies that depend on the length are those of each window, also of the last and shorter one.
TEST(EvaluateLanguage, GivesLongWindowsTheirOwnLengths) {
  constexpr std::int64_t window = 10;
  nn::StackSpec stack = tiny("attention").stack().spec();
  stack.blocks.clear();
  const Rope rope{.rotary_dim = 8, .scaling = DynamicNtkScaling{.factor = 4.0, .original_max_positions = 4}};
  nn::AttentionOptions attention{.num_query_heads = 2};
  attention.rope.emplace(rope, 64);
  stack.blocks.push_back({.mixer = attention});
  models::LanguageModel model({.vocabulary = words, .positions = 64, .stack = stack},
                              [](const std::string&, const Shape& shape) {
                                return Tensor::normal(shape, static_cast<std::uint64_t>(shape.rank()));
                              });
  ASSERT_EQ(model.longest_kept(), 4);
  const std::vector<std::int32_t> ids = text(26);
  autograd::CrossEntropyStats expected;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += window) {
    const std::vector<std::int32_t> one(
        ids.begin() + static_cast<std::ptrdiff_t>(begin),
        ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + window + 1, ids.size())));
    nn::Context context;
    autograd::CrossEntropyStats stats;
    model.loss(context, models::pad({&one, 1}), {}, &stats);
    expected += stats;
  }
  EXPECT_EQ(evaluate(model, ids, window, 16).log_likelihood, expected.log_likelihood);
}

void expect_same_weights(const models::LanguageModel& a, const models::LanguageModel& b) {
  auto other = b.parameters().all().begin();
  for (const nn::Parameter& parameter : a.parameters().all()) {
    const float* x = parameter.value.data<float>();
    EXPECT_TRUE(std::equal(x, x + parameter.value.count(), other->value.data<float>())) << parameter.name;
    ++other;
  }
}

TEST_P(LanguageTraining, LearnsAndResumesWithTheSameBits) {
  const auto train_ids = text(400), valid_ids = text(170);
  const LanguageData data{train_ids, valid_ids};
  Listener silent;
  models::LanguageModel whole = tiny(GetParam());
  const Result result = train(whole, data, options("whole"), Start::fresh, silent, never);
  EXPECT_EQ(result.ended, Ended::finished);
  EXPECT_LT(result.final.cross_entropy, 0.8 * std::log(static_cast<double>(words)));
  // Stopped in the middle, and resumed by a model that has other weights. It computes its blocks again in
  // backward, which changes no bit; blocks that merge rows cannot.
  models::LanguageModel part = tiny(GetParam());
  int steps = 0;
  const Result stopped =
      train(part, data, options("parts"), Start::fresh, silent, [&] { return ++steps > 27; });
  EXPECT_EQ(stopped.ended, Ended::stopped);
  models::LanguageModel rest = tiny(GetParam());
  LanguageOptions recomputing = options("parts");
  if (std::string_view(GetParam()) != "merging") recomputing.activations = nn::Activations::recomputed;
  const Result resumed = train(rest, data, recomputing, Start::resume, silent, never);
  EXPECT_EQ(resumed.final.cross_entropy, result.final.cross_entropy);
  expect_same_weights(rest, whole);
  expect_same_weights(models::load_language_model((folder_ / "parts").string()), whole);
}

TEST_P(LanguageTraining, RefusesToResumeWithAnotherWindow) {
  const auto ids = text(100);
  Listener silent;
  models::LanguageModel model = tiny(GetParam());
  LanguageOptions given = options("parts");
  given.max_updates = 2;
  train(model, {ids, ids}, given, Start::fresh, silent, never);
  given.window = 8;
  EXPECT_THROW(train(model, {ids, ids}, given, Start::resume, silent, never), FileError);
  given.window = 100;
  EXPECT_THROW(train(model, {ids, ids}, given, Start::fresh, silent, never), InvalidArgument);
}

}  // namespace
}  // namespace fovea::train
