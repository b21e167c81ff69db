// What weights of fewer bits change: the definitions, and a model beside itself.
#include "fovea/models/weight_errors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "models/random_family.h"

namespace fovea::models {
namespace {

Tensor rows_of(const std::vector<float>& values, std::int64_t width) {
  Tensor rows(DType::f32, {static_cast<std::int64_t>(values.size()) / width, width});
  std::copy(values.begin(), values.end(), rows.data<float>());
  return rows;
}

TEST(WeightErrors, FollowTheirDefinitions) {
  RowErrors errors;
  EXPECT_EQ(errors.mean_cosine(), 1.0);
  errors.add(rows_of({3, 4, 0, 0}, 2), rows_of({4, 3, 0, 0}, 2));
  errors.add(rows_of({0, 2}, 2), rows_of({0, 1}, 2));
  EXPECT_EQ(errors.rows, 2);
  EXPECT_DOUBLE_EQ(errors.least_cosine, 24.0 / 25.0);
  EXPECT_DOUBLE_EQ(errors.mean_cosine(), (24.0 / 25.0 + 1.0) / 2.0);
  EXPECT_DOUBLE_EQ(errors.numbers.value(), std::sqrt((1.0 + 1.0 + 1.0) / (25.0 + 4.0)));
  EXPECT_THROW(errors.add(rows_of({1, 2}, 2), rows_of({1, 2}, 1)), InvalidArgument);
  RelativeError zeros;
  EXPECT_EQ(zeros.value(), 0.0);
  EXPECT_THROW(zeros.add(std::vector<float>(2), std::vector<float>(3)), InvalidArgument);
}

// Numbers of several pieces, in a sum whose bits no number of threads changes.
TEST(WeightErrors, OfManyNumbersAreThoseOfPlainSums) {
  const std::int64_t width = 300, rows = 500;
  Tensor exact(DType::f32, {rows, width}), given(DType::f32, {rows, width});
  double difference = 0.0, size = 0.0;
  for (std::int64_t i = 0; i < exact.count(); ++i) {
    exact.data<float>()[i] = std::sin(static_cast<float>(i));
    given.data<float>()[i] = exact.data<float>()[i] + 1e-3f * std::cos(static_cast<float>(3 * i));
    const double off = double{given.data<float>()[i]} - double{exact.data<float>()[i]};
    difference += off * off;
    size += double{exact.data<float>()[i]} * exact.data<float>()[i];
  }
  std::vector<double> found;
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    RowErrors errors;
    errors.add(exact, given);
    set_default_executor(nullptr);
    EXPECT_EQ(errors.rows, rows);
    found.push_back(errors.numbers.value());
    found.push_back(errors.mean_cosine());
  }
  EXPECT_NEAR(found[0], std::sqrt(difference / size), 1e-12);
  for (std::size_t n = 2; n < found.size(); ++n) EXPECT_EQ(found[n], found[n - 2]);
}

TEST(WeightErrors, OfALanguageModelAreThoseOfItsNumbers) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("fovea_weight_errors_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  save_random_model(folder.string(), R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
      "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 300})");
  const ModelFolder read(folder);
  LanguageModel exact = read.language_model(autograd::WeightType::f32),
                given = read.language_model(autograd::WeightType::int8);
  std::filesystem::remove_all(folder);
  std::vector<std::int32_t> ids(200);  // more rows than are computed at once
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 40);

  LanguageErrors none;
  none.add(exact, exact, ids);
  EXPECT_EQ(none.hidden.value() + none.logits.value() + none.largest_difference, 0.0);
  EXPECT_EQ(none.tokens, 199);
  EXPECT_EQ(none.same_best, 199);

  LanguageErrors errors;
  errors.add(exact, given, ids);
  const std::vector<double> of_exact = token_log_probabilities(exact, ids),
                            of_given = token_log_probabilities(given, ids);
  double largest = 0.0;
  for (std::size_t i = 0; i < of_exact.size(); ++i)
    largest = std::max(largest, std::abs(of_exact[i] - of_given[i]));
  EXPECT_NEAR(errors.largest_difference, largest, 1e-5);
  EXPECT_GT(largest, 1e-3);
  EXPECT_NEAR(errors.exact_log_probability, std::reduce(of_exact.begin(), of_exact.end()), 1e-3);
  EXPECT_NEAR(errors.given_log_probability, std::reduce(of_given.begin(), of_given.end()), 1e-3);
  EXPECT_GT(errors.hidden.value(), 1e-4);
  EXPECT_LT(errors.hidden.value(), 0.2);
  EXPECT_GT(errors.logits.value(), 1e-4);
  // The same count by all logits at once.
  nn::Context inference;
  const Padded text{.size = 1, .length = 200, .ids = ids, .lengths = {200}};
  const Tensor x = exact.logits(exact.hidden(inference, text).value()),
               y = given.logits(given.hidden(inference, text).value());
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < 199; ++i) {
    const float *a = x.data<float>() + i * 40, *b = y.data<float>() + i * 40;
    same += std::max_element(a, a + 40) - a == std::max_element(b, b + 40) - b ? 1 : 0;
  }
  EXPECT_EQ(errors.same_best, same);
  EXPECT_THROW(errors.add(exact, given, {ids.data(), 1}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models
