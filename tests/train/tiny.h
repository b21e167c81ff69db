// A corpus and a model that train in a moment.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "fovea/models/rnn.h"
#include "fovea/text/generated.h"
#include "fovea/train/dataset.h"

namespace fovea::train {

class Tiny {
 public:
  Tiny() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("fovea_train_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::create_directories(root_);
    const text::ParallelCorpus corpus = text::generate_corpus({.seed = 3, .count = 120, .max_words = 8});
    const text::ParallelCorpus held_out =
        text::generate_corpus({.seed = 4, .count = 12, .max_words = 8, .split = text::Split::valid});
    tokenizer_ = build_tokenizer(corpus, {TokenizerKind::whitespace, 0});
    data = make_data(corpus, held_out, *tokenizer_, 100, nullptr);
  }
  ~Tiny() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::unique_ptr<models::SequenceToSequence> model() const {
    return models::make_rnn({.vocabulary = tokenizer_->size(), .embedding = 8, .hidden = 8, .dropout = 0.2f},
                            7);
  }
  /// Twenty updates of about eight sentences, validated at 8 and 16.
  TrainOptions options(const std::string& folder) const {
    return {.batch_words = 64,
            .schedule = nn::InverseSquareRoot{0.01, 5},
            .max_updates = 20,
            .validate_every = 8,
            .save_every = 3,
            .average = 2,
            .seed = 5,
            .folder = (root_ / folder).string()};
  }
  std::filesystem::path path(const std::string& name) const { return root_ / name; }

  Data data;

 private:
  std::filesystem::path root_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline bool never() {
  return false;
}

}  // namespace fovea::train
