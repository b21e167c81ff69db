// Translators by recurrences, and by decoders that read few rows of what is long ago: they learn, resume with
// the same bits, and translate from their folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fovea/models/model_folder.h"
#include "fovea/models/transformer.h"
#include "models/mixer_names.h"
#include "train/tiny.h"

namespace fovea::train {
namespace {

class TranslatorTraining : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<models::SequenceToSequence> model() const {
    const std::vector<models::LayerMixer> mixers = models::parse_mixers(GetParam(), 2);
    return models::make_transformer({.vocabulary = tiny_.data.tokenizer->size(),
                                     .dim = 16,
                                     .feed_forward = 16,
                                     .heads = 2,
                                     .encoder_layers = 2,
                                     .decoder_layers = 2,
                                     .norm = models::NormPlace::pre,
                                     .dropout = 0.1f,
                                     .encoder_mixers = mixers,
                                     .decoder_mixers = mixers},
                                    7);
  }
  TrainOptions options(const std::string& folder) const {
    TrainOptions options = tiny_.options(folder);
    options.batch_words = 200;
    options.max_updates = 16;
    options.average = 0;
    return options;
  }

  Tiny tiny_;
};

INSTANTIATE_TEST_SUITE_P(Mixers, TranslatorTraining, testing::mixer_names(), testing::test_name);

TEST_P(TranslatorTraining, LearnsAndResumesWithTheSameBits) {
  Listener silent;
  const auto whole = model();
  const Result result = train(*whole, tiny_.data, options("whole"), Start::fresh, silent, never);
  ASSERT_EQ(result.ended, Ended::finished);
  EXPECT_LT(result.curve.back().cross_entropy, 0.85 * std::log(static_cast<double>(whole->vocabulary())));
  const auto part = model();
  int steps = 0;
  ASSERT_EQ(
      train(*part, tiny_.data, options("parts"), Start::fresh, silent, [&] { return ++steps > 11; }).ended,
      Ended::stopped);
  const auto rest = model();
  const Result resumed = train(*rest, tiny_.data, options("parts"), Start::resume, silent, never);
  EXPECT_EQ(resumed.final.cross_entropy, result.final.cross_entropy);
  EXPECT_EQ(bytes_of(tiny_.path("whole") / "model.safetensors"),
            bytes_of(tiny_.path("parts") / "model.safetensors"));
  // The folder has the model that was trained, and says what it keeps.
  const auto loaded = models::load_model(tiny_.path("whole").string());
  EXPECT_EQ(loaded->config(), whole->config());
  const models::FolderReport report = models::report_on(models::ModelFolder(tiny_.path("whole")));
  EXPECT_EQ(report.refused, "");
  ASSERT_EQ(report.layers.size(), 2u);
  ASSERT_EQ(report.encoder_layers.size(), 2u);
  const std::vector<models::LayerKeeps> keeps = whole->decoder_keeps();
  for (std::size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(report.layers[n].mixer, keeps[n].mixer);
    EXPECT_EQ(report.layers[n].state_bytes, keeps[n].state_bytes);
    EXPECT_EQ(report.layers[n].state_bytes > 0, keeps[n].mixer != "attention");
    EXPECT_EQ(report.encoder_layers[n].mixer, keeps[n].mixer);
  }
  // Decays from the folder are those of the model that it was saved from.
  const std::vector<models::LayerKeeps> of_folder = loaded->decoder_keeps();
  for (std::size_t n = 0; n < 2; ++n) {
    ASSERT_EQ(report.layers[n].decays.size(), of_folder[n].decays.size());
    for (std::size_t h = 0; h < of_folder[n].decays.size(); ++h) {
      EXPECT_EQ(report.layers[n].decays[h].least, of_folder[n].decays[h].least);
      EXPECT_EQ(report.layers[n].decays[h].most, of_folder[n].decays[h].most);
      EXPECT_GT(report.layers[n].decays[h].least, 0.0);
      EXPECT_LE(report.layers[n].decays[h].most, 1.0);
    }
  }
}

// Sentences of characters, so that targets have finished blocks of 64. The encoder, which reads both sides,
// has attention.
class BlockTranslatorTraining : public ::testing::TestWithParam<std::string> {
 protected:
  BlockTranslatorTraining() {
    const text::ParallelCorpus corpus = text::generate_corpus({.seed = 3, .count = 60, .max_words = 30});
    const text::ParallelCorpus held_out =
        text::generate_corpus({.seed = 4, .count = 6, .max_words = 30, .split = text::Split::valid});
    tokenizer_ = build_tokenizer(corpus, {TokenizerKind::characters, 200});
    tiny_.data = make_data(corpus, held_out, *tokenizer_, 400, nullptr);
  }
  std::unique_ptr<models::SequenceToSequence> model() const {
    return models::make_transformer({.vocabulary = tokenizer_->size(),
                                     .dim = 16,
                                     .feed_forward = 16,
                                     .heads = 2,
                                     .encoder_layers = 2,
                                     .decoder_layers = 2,
                                     .norm = models::NormPlace::pre,
                                     .dropout = 0.1f,
                                     .decoder_mixers = models::parse_mixers(GetParam(), 2)},
                                    7);
  }
  TrainOptions options(const std::string& folder) const {
    TrainOptions options = tiny_.options(folder);
    options.batch_words = 1000;
    options.max_updates = 6;
    options.validate_every = 3;
    options.save_every = 2;
    options.average = 0;
    return options;
  }

  Tiny tiny_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

INSTANTIATE_TEST_SUITE_P(Mixers, BlockTranslatorTraining, ::testing::ValuesIn(testing::block_mixers()),
                         testing::test_name);

TEST_P(BlockTranslatorTraining, ResumesWithTheSameBits) {
  Listener silent;
  const auto whole = model();
  ASSERT_EQ(train(*whole, tiny_.data, options("whole"), Start::fresh, silent, never).ended, Ended::finished);
  const auto part = model();
  int steps = 0;
  ASSERT_EQ(
      train(*part, tiny_.data, options("parts"), Start::fresh, silent, [&] { return ++steps > 5; }).ended,
      Ended::stopped);
  const auto rest = model();
  ASSERT_EQ(train(*rest, tiny_.data, options("parts"), Start::resume, silent, never).ended, Ended::finished);
  EXPECT_EQ(bytes_of(tiny_.path("whole") / "model.safetensors"),
            bytes_of(tiny_.path("parts") / "model.safetensors"));
  // Linformer's sums learn only where a block has been finished, so there were such blocks.
  const auto untrained = model();
  for (const nn::Parameter& parameter : whole->parameters().all()) {
    if (!parameter.name.ends_with(".e")) continue;
    const Tensor& before = untrained->parameters().at(parameter.name).value;
    EXPECT_FALSE(std::equal(before.data<float>(), before.data<float>() + before.count(),
                            parameter.value.data<float>()))
        << parameter.name;
  }
}

}  // namespace
}  // namespace fovea::train
