#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "fovea/core/philox.h"
#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/optimizer.h"

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;

struct Named {
  std::string name;
  std::unique_ptr<SequenceToSequence> model;
};

std::vector<Named> every_model(std::int64_t vocabulary = 13) {
  std::vector<Named> list;
  for (const RnnAttention attention :
       {RnnAttention::none, RnnAttention::additive, RnnAttention::dot, RnnAttention::scaled_dot,
        RnnAttention::general, RnnAttention::low_rank}) {
    for (const QueryState query : {QueryState::before, QueryState::after}) {
      const bool other = attention == RnnAttention::dot || attention == RnnAttention::general;
      list.push_back({"rnn " + std::to_string(static_cast<int>(attention)) +
                          (query == QueryState::before ? " before" : " after"),
                      make_rnn({.vocabulary = vocabulary,
                                .embedding = 6,
                                .hidden = 8,
                                .cell = other ? autograd::Cell::rnn : autograd::Cell::gru,
                                .attention = attention,
                                .query = query,
                                .values = other ? ValueKind::projection : ValueKind::states},
                               3)});
    }
  }
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    list.push_back({norm == NormPlace::pre ? "transformer pre" : "transformer post",
                    make_transformer({.vocabulary = vocabulary,
                                      .dim = 8,
                                      .feed_forward = 12,
                                      .heads = 2,
                                      .encoder_layers = 2,
                                      .decoder_layers = 2,
                                      .norm = norm,
                                      .dropout = 0.0f},
                                     3)});
  }
  return list;
}

const std::vector<Ids> sources{{4, 5, 6, 7}, {8, 9}, {10, 11, 12}}, targets{{5, 4, 9}, {7, 7, 6, 5, 4}, {12}};

double loss_of(SequenceToSequence& model, const Batch& batch) {
  nn::Context context;
  autograd::CrossEntropyStats stats;
  model.loss(context, batch, {.smoothing = 0.1f}, &stats);
  return stats.loss;
}

// The derivative along the gradient's own direction is the gradient's norm. Every parameter takes part in
// this one number.
TEST(EveryModel, GradientIsTheDerivative) {
  const Batch batch = make_batch(sources, targets);
  for (const Named& named : every_model()) {
    SequenceToSequence& model = *named.model;
    autograd::Tape tape;
    nn::Context context{&tape, 0, 0};
    autograd::CrossEntropyStats stats;
    tape.backward(model.loss(context, batch, {.smoothing = 0.1f}, &stats));
    for (nn::Parameter& parameter : model.parameters().all()) {
      double square = 0.0;
      for (std::int64_t i = 0; i < parameter.gradient.count(); ++i)
        square += std::pow(static_cast<double>(parameter.gradient.data<float>()[i]), 2);
      const double norm = std::sqrt(square);
      // A key's bias shifts all scores of a row by the same amount. Softmax is invariant to that, so the
      // gradient is rounding noise.
      if (norm < 1e-3) continue;
      const double h = 3e-3;
      const Tensor kept = parameter.value.clone();
      const auto at = [&](double step) {
        for (std::int64_t i = 0; i < kept.count(); ++i) {
          parameter.value.data<float>()[i] =
              kept.data<float>()[i] +
              static_cast<float>(step / norm * static_cast<double>(parameter.gradient.data<float>()[i]));
        }
        return loss_of(model, batch);
      };
      const double slope = (at(h) - at(-h)) / (2 * h);
      std::memcpy(parameter.value.raw(), kept.raw(), kept.bytes());
      // f32 rounding (loss about 35, eps 6e-8 for each term, over 2h), and ReLUs that switch within h.
      EXPECT_NEAR(slope, norm, 0.02 * norm + 2e-3) << named.name << " " << parameter.name;
    }
  }
}

TEST(EveryModel, StepsAgreeWithTeacherForcing) {
  const Batch batch = make_batch(sources, targets);
  for (const Named& named : every_model()) {
    SequenceToSequence& model = *named.model;
    nn::Context context;
    const Tensor whole = model.log_probabilities(model.hidden(context, batch, nullptr, nullptr));
    const auto state = model.start(batch.source, batch.source_len, batch.source_lengths);
    for (std::int64_t t = 0; t < batch.target_len; ++t) {
      Ids previous;
      for (std::int64_t b = 0; b < batch.size; ++b)
        previous.push_back(batch.target_input[b * batch.target_len + t]);
      const Tensor step = model.log_probabilities(model.advance(*state, previous));
      for (std::int64_t b = 0; b < batch.size; ++b) {
        if (t >= batch.target_lengths[b]) continue;
        for (std::int64_t c = 0; c < model.vocabulary(); ++c) {
          ASSERT_NEAR(step.data<float>()[b * model.vocabulary() + c],
                      whole.data<float>()[(b * batch.target_len + t) * model.vocabulary() + c], 2e-5)
              << named.name << " step " << t;
        }
      }
    }
  }
}

// Its rows are computed piece by piece, and a large output matrix has larger pieces.
TEST(SequenceToSequence, MostProbableIsThatOfLogProbabilitiesInEveryPiece) {
  for (const auto& [vocabulary, dim] : {std::pair{3000, 8}, std::pair{30000, 128}}) {
    const auto model = make_transformer(
        {.vocabulary = vocabulary, .dim = dim, .heads = 2, .encoder_layers = 1, .decoder_layers = 1}, 1);
    const std::int64_t rows = 150;
    const Tensor hidden = Tensor::normal({rows, dim}, 2);
    Tensor expected = model->log_probabilities(hidden);
    const std::vector<std::int32_t> without{7};
    const auto best = model->most_probable(hidden, 1, without);
    ASSERT_EQ(std::ssize(best), rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = expected.data<float>() + r * vocabulary;
      row[7] = -std::numeric_limits<float>::infinity();
      const float* largest = std::max_element(row, row + vocabulary);
      ASSERT_EQ(best[r].size(), 1u);
      EXPECT_NEAR(best[r][0].log_probability, *largest, 1e-4) << vocabulary << ", row " << r;
      EXPECT_EQ(best[r][0].id, largest - row) << vocabulary << ", row " << r;
    }
  }
}

TEST(EveryModel, PaddingDoesNotMatter) {
  for (const Named& named : every_model()) {
    double alone = 0.0;
    for (std::size_t i = 0; i < sources.size(); ++i)
      alone += loss_of(*named.model, make_batch({sources[i]}, {targets[i]}));
    EXPECT_NEAR(loss_of(*named.model, make_batch(sources, targets)), alone, 1e-4) << named.name;
  }
}

TEST(EveryModel, ReuseChangesNoToken) {
  for (const Named& named : every_model()) {
    for (const int beam : {1, 3}) {
      DecodeStats with, without;
      const auto on = decode(*named.model, sources, {.beam_size = beam, .n_best = beam}, &with);
      const auto off =
          decode(*named.model, sources, {.beam_size = beam, .n_best = beam, .reuse = Reuse::off}, &without);
      for (std::size_t i = 0; i < sources.size(); ++i) {
        ASSERT_EQ(on[i].size(), off[i].size());
        for (std::size_t n = 0; n < on[i].size(); ++n) {
          EXPECT_EQ(on[i][n].ids, off[i][n].ids) << named.name;
          ASSERT_EQ(on[i][n].alignment.size(), off[i][n].alignment.size());
          for (std::size_t r = 0; r < on[i][n].alignment.size(); ++r) {
            double sum = 0.0;
            for (std::size_t c = 0; c < on[i][n].alignment[r].size(); ++c) {
              EXPECT_NEAR(on[i][n].alignment[r][c], off[i][n].alignment[r][c], 1e-5);
              sum += static_cast<double>(on[i][n].alignment[r][c]);
            }
            EXPECT_NEAR(sum, 1.0, 1e-5);
          }
        }
      }
      if (named.model->attends()) EXPECT_LT(with.score_evaluations, without.score_evaluations) << named.name;
    }
  }
}

TEST(EveryModel, BeamSearchFindsAtLeastTheGreedyScore) {
  for (const Named& named : every_model()) {
    const auto greedy = decode(*named.model, sources, {.beam_size = 1, .normalize = 0.0, .exact_length = 5});
    const auto beam = decode(*named.model, sources, {.beam_size = 13, .normalize = 0.0, .exact_length = 5});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(greedy[i][0].ids.size(), 5u);
      EXPECT_GE(beam[i][0].score, greedy[i][0].score - 1e-5) << named.name;
    }
  }
}

TEST(EveryModel, FolderKeepsEveryBit) {
  const auto folder = std::filesystem::temp_directory_path() / "fovea-models-test";
  for (const Named& named : every_model()) {
    save_model(folder.string(), *named.model);
    const auto again = load_model(folder.string());
    EXPECT_EQ(again->config(), named.model->config());
    for (const nn::Parameter& parameter : named.model->parameters().all()) {
      ASSERT_EQ(std::memcmp(again->parameters().at(parameter.name).value.raw(), parameter.value.raw(),
                            parameter.value.bytes()),
                0)
          << parameter.name;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(Config, RefusesUnknownModelsAndBadValues) {
  EXPECT_THROW(make_model("", 1), InvalidArgument);
  EXPECT_THROW(make_model("[1]", 1), InvalidArgument);
  EXPECT_THROW(make_model(R"({"model_type": "gpt"})", 1), InvalidArgument);
  EXPECT_THROW(make_model(R"({"model_type": "fovea-rnn", "vocab_size": 1e30})", 1), InvalidArgument);
  EXPECT_THROW(make_model(R"({"model_type": "fovea-transformer", "vocab_size": 10})", 1), InvalidArgument);
}

// The whole model learns to reverse short sequences, which no fixed output can do.
TEST(Learning, ReversesASequence) {
  for (const bool transformer : {false, true}) {
    const auto model =
        transformer
            ? make_transformer({.vocabulary = 14,
                                .dim = 32,
                                .feed_forward = 64,
                                .heads = 2,
                                .encoder_layers = 1,
                                .decoder_layers = 1,
                                .norm = NormPlace::pre,
                                .dropout = 0.0f},
                               1)
            : make_rnn({.vocabulary = 14, .embedding = 24, .hidden = 32, .query = QueryState::after}, 1);
    nn::Adam adam(model->parameters(), {.clip_norm = 1.0});
    PhiloxStream random(4);
    const auto example = [&] {
      Ids source(3 + random.next_below(3));
      for (auto& id : source) id = 4 + static_cast<std::int32_t>(random.next_below(10));
      return source;
    };
    for (int step = 0; step < 350; ++step) {
      std::vector<Ids> in, out;
      for (int i = 0; i < 32; ++i) {
        in.push_back(example());
        out.emplace_back(in.back().rbegin(), in.back().rend());
      }
      autograd::Tape tape;
      nn::Context context{&tape, 0, 0};
      tape.backward(model->loss(context, make_batch(in, out), {.reduction = {.scale = 1.0f / 32}}, nullptr));
      adam.step(5e-3);
    }
    int right = 0;
    for (int i = 0; i < 50; ++i) {
      const Ids source = example();
      right += decode(*model, {source}, {})[0][0].ids == Ids(source.rbegin(), source.rend());
    }
    EXPECT_GE(right, 40) << (transformer ? "transformer" : "rnn");
  }
}

}  // namespace
}  // namespace fovea::models
