// Folders of sentence-transformers: what their configs say, and the arithmetic of pooling.
#include "fovea/models/sentence_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/models/similarity.h"

namespace fovea::models {
namespace {

using PoolingKind = SentencePooling::Kind;

class SentenceFolders : public ::testing::Test {
 protected:
  SentenceFolders()
      : folder_(std::filesystem::temp_directory_path() / ("fovea_sentence_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_ / "1_Pooling");
    write("modules.json", kModules);
    write("1_Pooling/config.json", R"({"word_embedding_dimension": 3, "pooling_mode_mean_tokens": true})");
  }
  ~SentenceFolders() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string refusal() const {
    try {
      read_sentence_folder(folder_);
    } catch (const FileError& error) {
      return error.what();
    }
    return "accepted";
  }

  static constexpr const char* kModules = R"([
      {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
  std::filesystem::path folder_;
};

TEST_F(SentenceFolders, OldAndNewFormsAreRead) {
  const auto old = read_sentence_folder(folder_);
  ASSERT_TRUE(old);
  EXPECT_EQ(old->pooling.kind, PoolingKind::mean);
  EXPECT_TRUE(old->pooling.normalize);
  EXPECT_EQ(old->model, folder_);
  EXPECT_FALSE(old->max_length);
  write("1_Pooling/config.json",
        R"({"embedding_dimension": 3, "pooling_mode": "cls", "include_prompt": true})");
  write("sentence_bert_config.json", R"({"max_seq_length": 7})");
  EXPECT_EQ(read_sentence_folder(folder_)->pooling.kind, PoolingKind::first);
  EXPECT_EQ(read_sentence_folder(folder_)->max_length, 7);
  EXPECT_FALSE(read_sentence_folder(folder_ / "1_Pooling"));
}

TEST_F(SentenceFolders, WhatIsNotKnownIsRefused) {
  const auto with = [&](const std::string& pooling) {
    write("1_Pooling/config.json", pooling);
    return refusal();
  };
  EXPECT_NE(with(R"({"pooling_mode": "odd"})").find("pooling_mode: is not known: \"odd\""),
            std::string::npos);
  EXPECT_NE(with(R"({"pooling_mode_weightedmean_tokens": true})").find("is not known"), std::string::npos);
  EXPECT_NE(with(R"({"odd": 1})").find("odd: is not known"), std::string::npos);
  EXPECT_NE(with("{}").find("expected one mode of pooling, got 0"), std::string::npos);
  EXPECT_NE(with(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})").find("got 2"),
            std::string::npos);
  write("modules.json", R"([{"type": "a.Transformer", "path": "../../etc"}])");
  EXPECT_NE(refusal().find("path: expected a folder inside, got '../../etc'"), std::string::npos);
  write("modules.json",
        R"([{"type": "a.Transformer", "path": ""}, {"type": "a.Dense", "path": "1_Pooling"}])");
  EXPECT_NE(refusal().find("got Transformer, Dense"), std::string::npos);
  for (const char* text : {"", "{}", "[1]", "[[", R"([{"type": 1, "path": ""}])", "[],\"x\":[]"}) {
    write("modules.json", text);
    EXPECT_NE(refusal(), "accepted") << text;
  }
  // What is no JSON is told by its place in the file.
  write("modules.json", "[\n {]");
  EXPECT_NE(refusal().find("modules.json (line 2, column 3)"), std::string::npos) << refusal();
  write("modules.json", "[1] 2");
  EXPECT_NE(refusal().find("modules.json (line 1, column 5)"), std::string::npos) << refusal();
  write("modules.json", "{}");
  EXPECT_NE(refusal().find("expected an array of modules"), std::string::npos) << refusal();
}

TEST_F(SentenceFolders, TheConfigOfTheModelIsReadByItsKeys) {
  const auto with = [&](const std::string& config) {
    write("sentence_bert_config.json", config);
    return refusal();
  };
  const auto expect_part = [](const std::string& whole, const std::string& part) {
    EXPECT_NE(whole.find(part), std::string::npos) << whole << "\nlacks: " << part;
  };
  expect_part(with(R"({"do_lower_case": true})"),
              "sentence_bert_config.json: do_lower_case: expected false, got true");
  expect_part(with(R"({"do_lower_case": "no"})"), "do_lower_case: expected false, got \"no\"");
  expect_part(with(R"({"max_seq_length": "7"})"),
              "max_seq_length: expected a whole number from 1 to 1073741824, got \"7\"");
  expect_part(with(R"({"max_seq_length": 0})"), "max_seq_length: expected a whole number from 1");
  expect_part(with(R"({"max_seq_length": 7.5})"), "got 7.5");
  expect_part(with(R"({"odd": 1})"), "odd: is not known");
  EXPECT_EQ(with(R"({"max_seq_length": null, "do_lower_case": false})"), "accepted");
  std::filesystem::remove(folder_ / "sentence_bert_config.json");
  for (const char* family : {"xlnet", "xlm-roberta", "albert", "camembert", "distilbert", "roberta"}) {
    write(std::string("sentence_") + family + "_config.json", R"({"max_seq_length": 9})");
    EXPECT_EQ(read_sentence_folder(folder_)->max_length, 9) << family;
    std::filesystem::remove(folder_ / (std::string("sentence_") + family + "_config.json"));
  }
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": "true"})");
  expect_part(refusal(), "pooling_mode_cls_token: expected true or false, got \"true\"");
}

TEST_F(SentenceFolders, SearchesAsTheConfigSays) {
  const auto with = [&](const std::string& config) {
    write("config_sentence_transformers.json", config);
    return *read_sentence_folder(folder_);
  };
  const SentenceFolder none = *read_sentence_folder(folder_);
  EXPECT_EQ(none.similarity, Similarity::cosine);
  EXPECT_EQ(none.query_prompt() + none.passage_prompt() + none.prompt(""), "");
  EXPECT_THROW(none.prompt("query"), InvalidArgument);
  EXPECT_TRUE(makes_sentence_vectors(folder_));
  EXPECT_FALSE(makes_sentence_vectors(folder_ / "1_Pooling"));
  const SentenceFolder both = with(R"({"prompts": {"query": "q: ", "passage": "p: ", "corpus": "c: "},
                                       "similarity_fn_name": "manhattan", "truncate_dim": 2})");
  EXPECT_EQ(both.query_prompt(), "q: ");
  EXPECT_EQ(both.passage_prompt(), "p: ");
  EXPECT_EQ(both.prompt(""), "");
  EXPECT_EQ(both.prompt("corpus"), "c: ");
  EXPECT_EQ(both.similarity, Similarity::manhattan);
  EXPECT_EQ(both.truncate_dim, 2);
  const SentenceFolder fallback =
      with(R"({"prompts": {"any": "a: ", "query": null}, "default_prompt_name": "any"})");
  EXPECT_EQ(fallback.query_prompt(), "");
  EXPECT_EQ(fallback.passage_prompt(), "a: ");
  with(R"({"model_type": "CrossEncoder"})");
  EXPECT_FALSE(makes_sentence_vectors(folder_));
}

TEST(SimilarityTest, FollowsTheDefinitions) {
  const float values[] = {3.0f, 4.0f, 0.0f, 0.0f, -6.0f, 8.0f};
  Tensor query = Tensor::zeros(DType::f32, {2}), passages = Tensor::zeros(DType::f32, {3, 2});
  std::copy_n(values, 2, query.data<float>());
  std::copy_n(values, 6, passages.data<float>());
  const auto of = [&](Similarity similarity) { return similarities(similarity, query, passages); };
  EXPECT_EQ(of(Similarity::cosine), (std::vector<double>{1.0, 0.0, 14.0 / 50.0}));
  EXPECT_EQ(of(Similarity::dot), (std::vector<double>{25.0, 0.0, 14.0}));
  EXPECT_EQ(of(Similarity::euclidean), (std::vector<double>{0.0, -5.0, -std::sqrt(97.0)}));
  EXPECT_EQ(of(Similarity::manhattan), (std::vector<double>{0.0, -7.0, -13.0}));
  EXPECT_THROW(similarities(Similarity::dot, passages, query), InvalidArgument);
  EXPECT_EQ(best_of({1.0, 3.0, 1.0, 2.0}), (std::vector<std::size_t>{1, 3, 0, 2}));
  EXPECT_EQ(best_of({1.0, 3.0, 1.0, 2.0}, 2), (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(best_of({1.0}, 2), (std::vector<std::size_t>{0}));
  const double nan = std::nan("");
  EXPECT_EQ(best_of({1.0, nan, 3.0, nan, 2.0}), (std::vector<std::size_t>{2, 4, 0, 1, 3}));
}

TEST(SentencePoolingTest, FollowsTheDefinitions) {
  Tensor rows = Tensor::zeros(DType::f32, {1, 2, 2});
  const float values[] = {1.0f, -5.0f, 3.0f, 1.0f};
  std::copy(std::begin(values), std::end(values), rows.data<float>());
  const auto pooled = [&](PoolingKind kind, bool normalize = false) {
    const Tensor result = SentencePooling{kind, normalize}.apply(rows);
    return std::pair(result.data<float>()[0], result.data<float>()[1]);
  };
  EXPECT_EQ(pooled(PoolingKind::first), std::pair(1.0f, -5.0f));
  EXPECT_EQ(pooled(PoolingKind::last), std::pair(3.0f, 1.0f));
  EXPECT_EQ(pooled(PoolingKind::mean), std::pair(2.0f, -2.0f));
  EXPECT_EQ(pooled(PoolingKind::max), std::pair(3.0f, 1.0f));
  EXPECT_FLOAT_EQ(pooled(PoolingKind::mean_sqrt_len).first, 4.0f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(pooled(PoolingKind::mean, true).second, -std::sqrt(0.5f));
}

// Each text has the vector that it has alone, however many threads there are.
TEST(SentencePoolingTest, TextsOfOneTensorArePooledByThemselves) {
  const std::int64_t dim = 70;
  Tensor rows(DType::f32, {1, 40, dim});
  for (std::int64_t i = 0; i < rows.count(); ++i) rows.data<float>()[i] = std::sin(static_cast<float>(i * i));
  const RowRange texts[] = {{0, 1}, {1, 13}, {20, 20}, {5, 2}};
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    for (const PoolingKind kind : {PoolingKind::first, PoolingKind::last, PoolingKind::mean,
                                   PoolingKind::mean_sqrt_len, PoolingKind::max}) {
      const SentencePooling pooling{kind, true};
      const Tensor vectors = pooling.apply(rows, texts);
      for (std::size_t n = 0; n < std::size(texts); ++n) {
        Tensor alone(DType::f32, {texts[n].count, dim});
        std::copy_n(rows.data<float>() + texts[n].begin * dim, alone.count(), alone.data<float>());
        const Tensor wanted = pooling.apply(alone);
        for (std::int64_t d = 0; d < dim; ++d)
          ASSERT_EQ(vectors.data<float>()[static_cast<std::int64_t>(n) * dim + d], wanted.data<float>()[d]);
      }
    }
    set_default_executor(nullptr);
  }
  const auto refused = [&](RowRange text) {
    EXPECT_THROW((SentencePooling{}.apply(rows, std::span(&text, 1))), InvalidArgument);
  };
  refused({0, 0});
  refused({-1, 2});
  refused({39, 2});
  refused({41, 1});
}

// More numbers than one thread takes: the scores are those of plain sums, whatever the threads.
TEST(SimilarityTest, ManyPassagesAreSharedByThreads) {
  const std::int64_t dim = 37, count = 2000;
  Tensor query(DType::f32, {dim}), passages(DType::f32, {count, dim});
  for (std::int64_t i = 0; i < dim; ++i) query.data<float>()[i] = std::cos(static_cast<float>(i));
  for (std::int64_t i = 0; i < passages.count(); ++i)
    passages.data<float>()[i] = std::sin(static_cast<float>(i * i % 1009));
  const std::vector<double> dots = similarities(Similarity::dot, query, passages),
                            away = similarities(Similarity::manhattan, query, passages);
  for (std::int64_t row = 0; row < count; ++row) {
    double dot = 0.0, absolute = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const double x = query.data<float>()[d], y = passages.data<float>()[row * dim + d];
      dot += x * y;
      absolute += std::abs(x - y);
    }
    ASSERT_NEAR(dots[static_cast<std::size_t>(row)], dot, 1e-12);
    ASSERT_NEAR(away[static_cast<std::size_t>(row)], -absolute, 1e-12);
  }
  for (const int threads : {1, 5}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    EXPECT_EQ(similarities(Similarity::dot, query, passages), dots);
    set_default_executor(nullptr);
  }
  // The best few are the first of all.
  const std::vector<std::size_t> all = best_of(dots), few = best_of(dots, 7);
  EXPECT_EQ(few, std::vector<std::size_t>(all.begin(), all.begin() + 7));
  EXPECT_EQ(all.size(), dots.size());
}

}  // namespace
}  // namespace fovea::models
