// The decoder-only Transformer: the rows that a row sees, cached rows against all rows, gradients, folders.
#include "fovea/models/language_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "fovea/files/bytes.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/text_encoder.h"
#include "models/random_family.h"
#include "models/tiny.h"

namespace fovea::models {
namespace {

constexpr std::int64_t words = tiny_vocabulary;

LanguageModel tiny(std::uint64_t seed, float dropout = 0.0f) {
  LanguageModel model({.vocabulary = words,
                       .dim = 8,
                       .feed_forward = 12,
                       .heads = 2,
                       .layers = 3,
                       .dropout = dropout,
                       .attention_dropout = dropout},
                      seed);
  perturb(model, seed + 1);
  return model;
}

Tensor rows_of(LanguageModel& model, const std::vector<std::vector<std::int32_t>>& sequences) {
  nn::Context context;
  return model.log_probabilities(model.hidden(context, pad(sequences)));
}

// f32 sums of at most 12 terms of order 1, in about 30 ops one after another, and layer norms that divide
// by deviations of order 0.1: 12 · 30 · 2^-24 / 0.1 = 2e-4 at worst. The errors add up at random, so the
// tolerance is a tenth of that.
constexpr double tolerance = 2e-5;

TEST(LanguageModel, ALaterTokenChangesNoBitOfARowBefore) {
  LanguageModel model = tiny(3);
  const auto ids = drawn(9, 4);
  const Tensor before = rows_of(model, {ids, drawn(9, 5)});
  for (std::size_t changed = 0; changed < ids.size(); ++changed) {
    auto other = ids;
    other[changed] = (other[changed] + 1) % words;
    const Tensor after = rows_of(model, {other, drawn(9, 5)});
    for (std::size_t row = 0; row < ids.size(); ++row) {
      const float* a = before.data<float>() + row * words;
      const bool same = std::equal(a, a + words, after.data<float>() + row * words);
      EXPECT_EQ(same, row < changed) << "row " << row << ", token " << changed;
    }
    const float* next = before.data<float>() + 9 * words;  // the neighbour in the batch
    EXPECT_TRUE(std::equal(next, next + 9 * words, after.data<float>() + 9 * words));
  }
}

TEST(LanguageModel, NoRowSeesThePadding) {
  LanguageModel model = tiny(6);
  const auto ids = drawn(4, 7), longer = drawn(7, 8);
  const auto alone = rows_of(model, {ids});
  auto padded = pad(std::vector<std::vector<std::int32_t>>{ids, longer});
  for (const std::int32_t filler : {0, 11}) {
    std::fill(padded.ids.begin() + 4, padded.ids.begin() + 7, filler);
    nn::Context context;
    const Tensor beside = model.log_probabilities(model.hidden(context, padded));
    for (std::int64_t i = 0; i < alone.count(); ++i)
      EXPECT_NEAR(beside.data<float>()[i], alone.data<float>()[i], tolerance);
  }
}

TEST(LanguageModel, RowsReadOneByOneOrInPiecesEqualAllRowsAtOnce) {
  LanguageModel model = tiny(9);
  const auto ids = drawn(11, 10);
  const Tensor all = rows_of(model, {ids});
  for (const std::vector<std::size_t>& pieces :
       {std::vector<std::size_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 1, 6}, {11}}) {
    KvCache cache({.layers = model.cache_layers()});
    Sequence sequence = cache.start();
    std::size_t at = 0;
    for (const std::size_t piece : pieces) {
      const Tensor some =
          model.log_probabilities(model.extend(std::span(ids).subspan(at, piece), cache, sequence));
      for (std::size_t i = 0; i < piece * words; ++i)
        EXPECT_NEAR(some.data<float>()[i], all.data<float>()[at * words + i], tolerance);
      at += piece;
    }
    EXPECT_EQ(cache.length(sequence), 11);
    EXPECT_EQ(cache.ids(sequence), ids);
    EXPECT_EQ(cache.bytes_per_row(), 3 * 2 * 8 * 4);  // layers, keys and values, dim, bytes
    EXPECT_THROW(model.extend({}, cache, sequence), InvalidArgument);
    const std::int32_t unknown[] = {static_cast<std::int32_t>(words)};
    EXPECT_THROW(model.extend(unknown, cache, sequence), InvalidArgument);
    EXPECT_EQ(cache.length(sequence), 11);
  }
}

// Each round has rows of its own in the cache.
TEST(LanguageModel, RunsInRoundsBehindANarrowTable) {
  LanguageModelSpec spec{.vocabulary = words,
                         .positions = 32,
                         .stack = nn::stack_of({.layers = 2, .dim = 8, .feed_forward = 12, .heads = 2}),
                         .output = LanguageModelSpec::Output::own};
  spec.stack.rounds = 2;
  spec.stack.input_dim = 5;
  const auto zeros = [](const std::string&, const Shape& shape) { return Tensor::zeros(DType::f32, shape); };
  LanguageModel model(spec, zeros);
  perturb(model, 4);
  const auto ids = drawn(6, 3);
  const Tensor all = rows_of(model, {ids});
  KvCache cache({.layers = model.cache_layers()});
  Sequence sequence = cache.start();
  EXPECT_EQ(cache.bytes_per_row(), 4 * 2 * 8 * 4);
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const Tensor row = model.log_probabilities(model.extend(std::span(ids).subspan(at, 1), cache, sequence));
    for (std::size_t i = 0; i < words; ++i)
      EXPECT_NEAR(row.data<float>()[i], all.data<float>()[at * words + i], tolerance);
  }
  spec.output = LanguageModelSpec::Output::tied;
  EXPECT_THROW(LanguageModel(spec, zeros), InvalidArgument);
  EXPECT_THROW(TextEncoder({.vocabulary = words,
                            .stack = spec.stack,
                            .head = HeadSpec{.outputs = words, .output = HeadSpec::Output::tied}},
                           zeros),
               InvalidArgument);
}

// Sequences that are read together, a prompt beside single tokens, have the bits that each has alone.
TEST(LanguageModel, SequencesReadTogetherHaveTheBitsOfEachAlone) {
  LanguageModel model = tiny(10);
  const std::vector<std::vector<std::int32_t>> texts{drawn(9, 21), drawn(4, 22), drawn(7, 23)};
  const std::vector<std::size_t> before{8, 0, 6};
  KvCache cache({.layers = model.cache_layers(Paged{4})});
  std::vector<Sequence> together, alone;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    together.push_back(cache.start());
    if (before[n] > 0) model.extend(std::span(texts[n]).first(before[n]), cache, together.back());
    alone.push_back(cache.fork(together.back()));
  }
  std::vector<LanguageModel::Next> next;
  for (std::size_t n = 0; n < texts.size(); ++n)
    next.push_back({.sequence = &together[n], .ids = std::span(texts[n]).subspan(before[n])});
  const Tensor rows = model.extend(next, cache).value();
  std::int64_t first = 0;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const Tensor own = model.extend(next[n].ids, cache, alone[n]).value();
    EXPECT_EQ(std::memcmp(own.data<float>(), rows.data<float>() + first * 8,
                          static_cast<std::size_t>(own.count()) * sizeof(float)),
              0)
        << n;
    EXPECT_EQ(cache.ids(together[n]), texts[n]);
    first += own.size(1);
  }
  EXPECT_THROW(model.extend({}, cache), InvalidArgument);
  for (Sequence* sequence : {&together[0], static_cast<Sequence*>(nullptr)}) {
    next[1].sequence = sequence;
    try {
      model.extend(next, cache);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.function(), "LanguageModel::extend");
      EXPECT_EQ(error.argument(), "next");
    }
  }
  next[1].sequence = &together[1];
  next[1].ids = {};
  EXPECT_THROW(model.extend(next, cache), InvalidArgument);
  EXPECT_EQ(cache.length(together[0]), std::ssize(texts[0]));
}

TEST(LanguageModel, TheLossIsTheCrossEntropyOfItsRows) {
  LanguageModel model = tiny(11);
  const std::vector<std::vector<std::int32_t>> sequences{drawn(6, 12), drawn(2, 13), drawn(1, 14)};
  const Tensor rows = rows_of(model, sequences);
  double expected = 0.0;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    for (std::size_t i = 1; i < sequences[b].size(); ++i)
      expected -= static_cast<double>(
          rows.data<float>()[(b * 6 + i - 1) * words + static_cast<std::size_t>(sequences[b][i])]);
  }
  nn::Context context;
  autograd::CrossEntropyStats stats;
  const nn::Var loss = model.loss(context, pad(sequences), {.reduction = {.scale = 0.5f}}, &stats);
  EXPECT_EQ(stats.tokens, 5 + 1);
  EXPECT_NEAR(stats.loss, expected, 6 * tolerance);
  EXPECT_NEAR(loss.value().data<float>()[0], 0.5 * expected, 6 * tolerance);
  // With the weights of a reduction: one for each target, those of padding among them.
  std::vector<float> weights(3 * 5, 7.0f);
  double weighted = 0.0;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    for (std::size_t i = 1; i < sequences[b].size(); ++i) {
      const float weight = weights[b * 5 + i - 1] = 0.25f * static_cast<float>(i) - static_cast<float>(b);
      weighted -=
          static_cast<double>(weight) *
          static_cast<double>(
              rows.data<float>()[(b * 6 + i - 1) * words + static_cast<std::size_t>(sequences[b][i])]);
    }
  }
  const LossOptions chosen{.reduction = {.weights = weights, .scale = 2.0f}};
  EXPECT_NEAR(model.loss(context, pad(sequences), chosen).value().data<float>()[0], 2.0 * weighted,
              20 * tolerance);
  EXPECT_THROW(model.loss(context, pad(std::vector<std::vector<std::int32_t>>{{1}, {2}})), InvalidArgument);
}

// A text is scored in pieces of rows; its loss is computed in one.
TEST(LanguageModel, TheScoresOfATextSumToItsLoss) {
  LanguageModel model = tiny(11);
  for (const std::int64_t length : {2, 128, 129, 130, 300}) {
    const std::vector<std::int32_t> ids = drawn(length, 12);
    const std::vector<double> scores = token_log_probabilities(model, ids);
    ASSERT_EQ(std::ssize(scores), length - 1);
    nn::Context context;
    autograd::CrossEntropyStats stats;
    model.loss(context, pad({&ids, 1}), {}, &stats);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    EXPECT_NEAR(-sum, stats.loss, static_cast<double>(length) * tolerance);
  }
  for (const std::vector<std::int32_t>& bad : {std::vector<std::int32_t>{}, {3}, {3, -1}, {3, 1000}})
    EXPECT_THROW(token_log_probabilities(model, bad), InvalidArgument);
  EXPECT_THROW(token_log_probabilities(model, std::vector<std::int32_t>(5000, 3)), InvalidArgument);
}

double loss_of(LanguageModel& model, const Padded& tokens, bool backward) {
  autograd::Tape tape;
  nn::Context context{.tape = &tape, .dropout_seed = 21};
  autograd::CrossEntropyStats stats;
  const nn::Var loss = model.loss(context, tokens, {.smoothing = 0.1f}, &stats);
  if (backward) tape.backward(loss);
  return stats.loss;
}

// Logits are 0.5 (W r + b): without the bias, the factor or their product the sums differ by more than a
// tenth.
TEST(LanguageModel, TheScoresOfATextSumToItsLossBehindABiasAndAFactor) {
  LanguageModelSpec spec{.vocabulary = 13, .positions = 16};
  spec.stack = nn::stack_of({.layers = 1, .dim = 8, .feed_forward = 12, .heads = 2});
  spec.bias = nn::Linear::Bias::with;
  spec.logit_factor = 0.5f;
  LanguageModel model(spec, [](const std::string& name, const Shape& shape) { return drawn(name, shape); });
  const std::vector<std::int32_t> text{3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<double> scores = token_log_probabilities(model, text);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  nn::Context inference;
  const Padded tokens{.size = 1, .length = std::ssize(text), .ids = text, .lengths = {std::ssize(text)}};
  autograd::CrossEntropyStats stats;
  model.loss(inference, tokens, {}, &stats);
  EXPECT_NEAR(stats.loss, -sum, 1e-4);
  // Against the definition, from the rows.
  const Tensor rows = model.hidden(inference, tokens).value(), logits = model.logits(rows);
  const auto values = [&](const char* name) { return model.parameters().at(name).value.data<float>(); };
  const float *w = values("model.embed_tokens.weight"), *b = values("lm_head.bias");
  for (std::int64_t v = 0; v < 13; ++v) {
    double product = static_cast<double>(b[v]);
    for (std::int64_t d = 0; d < 8; ++d)
      product += static_cast<double>(w[v * 8 + d]) * static_cast<double>(rows.data<float>()[d]);
    EXPECT_NEAR(logits.data<float>()[v], 0.5 * product, 1e-5);
  }
}

// The derivative along the gradient, against central differences. ReLUs are held open or shut, because at
// their corners there is no derivative.
TEST(LanguageModel, GradientsEqualCentralDifferences) {
  for (const float dropout : {0.0f, 0.25f}) {
    LanguageModel model = tiny(15, dropout);
    for (nn::Parameter& parameter : model.parameters().all()) {
      if (!parameter.name.ends_with("fc1.bias")) continue;
      for (std::int64_t i = 0; i < parameter.value.count(); ++i)
        parameter.value.data<float>()[i] = i % 2 == 0 ? 6.0f : -6.0f;
    }
    const Padded tokens = pad(std::vector<std::vector<std::int32_t>>{drawn(7, 16), drawn(3, 17)});
    model.parameters().zero_gradients();
    const double at = loss_of(model, tokens, true);
    const double noise = 4.0 * std::numeric_limits<float>::epsilon() * at;
    for (nn::Parameter& parameter : model.parameters().all()) {
      SCOPED_TRACE(parameter.name);
      const Tensor kept = parameter.value.clone();
      const float* g = parameter.gradient.data<float>();
      double norm = 0.0;
      for (std::int64_t i = 0; i < kept.count(); ++i) norm += static_cast<double>(g[i]) * g[i];
      norm = std::sqrt(norm);
      ASSERT_GT(norm, 0.0) << "the loss does not reach this parameter";
      const auto along = [&](double step) {
        double difference = 0.0;
        for (const double sign : {1.0, -1.0}) {
          for (std::int64_t i = 0; i < kept.count(); ++i) {
            parameter.value.data<float>()[i] =
                static_cast<float>(kept.data<float>()[i] + sign * step * g[i] / norm);
          }
          difference += sign * loss_of(model, tokens, false);
        }
        std::copy_n(kept.data<float>(), kept.count(), parameter.value.data<float>());
        return difference / (2.0 * step);
      };
      // The truncation error falls with step²: the difference of the two results is about three times the
      // error of the finer one.
      const double step = 0.01, fine = along(step), coarse = along(2.0 * step);
      const double bound = std::abs(coarse - fine) + noise / step;
      EXPECT_NEAR(fine, norm, bound);
      EXPECT_LT(bound, 0.1 * norm + 2.0 * noise / step) << "too coarse to tell right from wrong";
    }
  }
}

TEST(LanguageModel, RefusesImpossibleSizes) {
  const LanguageModelConfig good{.vocabulary = 5, .dim = 8, .feed_forward = 8, .heads = 2, .layers = 1};
  const auto refused = [&](auto&& change) {
    LanguageModelConfig bad = good;
    change(bad);
    EXPECT_THROW(LanguageModel(bad, 1), InvalidArgument);
  };
  EXPECT_NO_THROW(LanguageModel(good, 1));
  refused([](auto& c) { c.vocabulary = 0; });
  refused([](auto& c) { c.dim = 7; });
  refused([](auto& c) { c.dim = 6; });  // heads of three elements have no pairs
  refused([](auto& c) { c.positions = 0; });
  refused([](auto& c) { c.heads = 3; });
  refused([](auto& c) { c.heads = 0; });
  refused([](auto& c) { c.layers = 0; });
  refused([](auto& c) { c.feed_forward = -1; });
  refused([](auto& c) { c.dropout = 1.0f; });
  refused([](auto& c) { c.dropout = std::nanf(""); });
  refused([](auto& c) { c.attention_dropout = -0.1f; });
  LanguageModel model(good, 1);
  EXPECT_THROW(rows_of(model, {{1, 5}}), InvalidArgument);
  LanguageModelConfig shorter = good;
  shorter.positions = 3;
  LanguageModel three(shorter, 1);
  EXPECT_NO_THROW(rows_of(three, {{1, 2, 3}}));
  EXPECT_THROW(rows_of(three, {{1, 2, 3, 4}}), InvalidArgument);
}

// Biases by distance have no table that would end.
TEST(LanguageModel, ReadsNoMoreThanItsLongest) {
  LanguageModelSpec spec{.vocabulary = 5, .positions = 4};
  spec.stack.dim = 8;
  spec.stack.blocks = {
      {.mixer = nn::AttentionOptions{.num_query_heads = 2, .spec = {.mods = {AlibiBias{}}}}}};
  LanguageModel model(spec, [](const std::string&, const Shape& shape) { return Tensor::normal(shape, 1); });
  ASSERT_EQ(model.longest(), 4);
  KvCache cache({.layers = model.cache_layers()});
  Sequence sequence = cache.start();
  const std::vector<std::int32_t> three{1, 2, 3}, two{1, 2};
  model.extend(three, cache, sequence);
  try {
    model.extend(two, cache, sequence);
    ADD_FAILURE() << "five tokens";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "LanguageModel::extend");
    EXPECT_EQ(error.argument(), "ids");
  }
  EXPECT_EQ(cache.length(sequence), 3);
  EXPECT_THROW(rows_of(model, {{1, 2, 3, 4, 1}}), InvalidArgument);
}

// The last token of a sequence is a target alone, and needs no position.
TEST(LanguageModel, TheLossReadsAllTokensButTheLast) {
  LanguageModelSpec spec{.vocabulary = 5, .positions = 4};
  spec.stack = nn::stack_of({.layers = 1, .dim = 8, .feed_forward = 12, .heads = 2});
  spec.stack.positions = nn::LearnedPositions{.count = 4};
  LanguageModel model(spec, [](const std::string&, const Shape& shape) { return Tensor::normal(shape, 1); });
  nn::Context context;
  EXPECT_NO_THROW(model.loss(context, pad(std::vector<std::vector<std::int32_t>>{{1, 2, 3, 4, 1}})));
  try {
    model.loss(context, pad(std::vector<std::vector<std::int32_t>>{{1, 2}, {1, 2, 3, 4, 1, 2}}));
    ADD_FAILURE() << "five positions";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "LanguageModel::loss");
    EXPECT_EQ(error.argument(), "tokens");
  }
}

TEST(LanguageModel, RefusesTokensThatDoNotBelongTogether) {
  LanguageModel model = tiny(5);
  const Padded good = pad(std::vector<std::vector<std::int32_t>>{{1, 2, 3}, {4}});
  const auto refused = [&](auto&& change) {
    Padded bad = good;
    change(bad);
    nn::Context context;
    EXPECT_THROW(model.hidden(context, bad), InvalidArgument);
    EXPECT_THROW(model.loss(context, bad), InvalidArgument);
  };
  refused([](Padded& tokens) { tokens.size = 0; });
  refused([](Padded& tokens) { tokens.size = -2; });
  refused([](Padded& tokens) { tokens.length = 0; });
  refused([](Padded& tokens) { tokens.length = 2; });
  refused([](Padded& tokens) { tokens.ids.pop_back(); });
  refused([](Padded& tokens) { tokens.lengths.clear(); });
  refused([](Padded& tokens) { tokens.lengths.push_back(1); });
  refused([](Padded& tokens) { tokens.lengths[0] = 4; });
  refused([](Padded& tokens) { tokens.lengths[1] = -1; });
  EXPECT_THROW(model.logits(nn::Var()), InvalidArgument);
  EXPECT_THROW(model.logits(Tensor::zeros(DType::f32, {8, 2})), InvalidArgument);  // of 16 elements
}

class Folder : public testing::Test {
 protected:
  Folder() : path(std::filesystem::temp_directory_path() / "fovea_language_model_test") {
    std::filesystem::remove_all(path);
  }
  ~Folder() override { std::filesystem::remove_all(path); }
  void write_config(const std::string& text) const { std::ofstream(path / "config.json") << text; }
  std::filesystem::path path;
};

TEST_F(Folder, BringsBackTheModelThatWasSaved) {
  LanguageModel model = tiny(30, 0.1f);
  save_model(path.string(), model);
  LanguageModel loaded = load_language_model(path.string());
  EXPECT_EQ(loaded.config().layers, 3);
  EXPECT_EQ(loaded.config().dropout, 0.1f);
  const auto ids = drawn(8, 31);
  const Tensor a = rows_of(model, {ids}), b = rows_of(loaded, {ids});
  // Embeddings and the last norm were multiplied when saved and divided when loaded: the error is that of a
  // few roundings.
  for (std::int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], tolerance);
  // Starcoder2's names, and embeddings that are used as input without a factor.
  const files::TensorFile file = files::load_safetensors((path / "model.safetensors").string());
  const Tensor* table = file.find("model.embed_tokens.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_FLOAT_EQ(
      table->data<float>()[5],
      std::sqrt(8.0f) * model.parameters().at("model.embed_tokens.weight").value.data<float>()[5]);
  for (const char* name : {"self_attn.o_proj.bias", "input_layernorm.weight", "post_attention_layernorm.bias",
                           "mlp.c_fc.weight", "mlp.c_proj.weight"})
    EXPECT_NE(file.find(std::string("model.layers.2.") + name), nullptr) << name;
  EXPECT_NE(file.find("model.norm.weight"), nullptr);
  EXPECT_EQ(file.tensors.size(), model.parameters().all().size());
}

// The files that transformers writes for a model that is larger than its limit for one file.
TEST_F(Folder, ReadsShards) {
  save_model(path.string(), tiny(33));
  LanguageModel model = load_language_model(path.string());
  const Tensor whole = rows_of(model, {{1, 2, 3}});
  const files::TensorFile file = files::load_safetensors(path / "model.safetensors");
  std::filesystem::remove(path / "model.safetensors");
  EXPECT_THROW(load_language_model(path.string()), FileError);
  files::save_sharded_safetensors(path, file, 1000);
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(path), {}), 4);
  LanguageModel loaded = ModelFolder(path).language_model();
  const Tensor parts = rows_of(loaded, {{1, 2, 3}});
  for (std::int64_t i = 0; i < whole.count(); ++i) EXPECT_EQ(parts.data<float>()[i], whole.data<float>()[i]);
  // The error names the index.
  files::TensorFile fewer = file;
  fewer.tensors.pop_back();
  std::filesystem::remove_all(path);
  save_model(path.string(), tiny(33));
  std::filesystem::remove(path / "model.safetensors");
  files::save_sharded_safetensors(path, fewer, 1000);
  try {
    load_language_model(path.string());
    ADD_FAILURE() << "a tensor is missing";
  } catch (const FileError& error) {
    EXPECT_NE(error.file().find("index.json"), std::string::npos) << error.what();
  }
}

// Starcoder2 has more choices than our language models: such a folder is run as what it says.
TEST_F(Folder, RunsOtherStarcoders) {
  save_model(path.string(), tiny(32));
  const std::string good = files::read_file((path / "config.json").string(), 1 << 20);
  const auto rows = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_config(text.replace(at, from.size(), to));
    LanguageModel model = load_language_model(path.string());
    return rows_of(model, {{1, 2, 3, 4, 5}});
  };
  // The same model without a factor of embeddings.
  const Tensor plain = rows("\"rope_theta\": 10000.0",
                            "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}");
  const Tensor own = rows("{", "{");
  for (std::int64_t i = 0; i < own.count(); ++i)
    EXPECT_NEAR(plain.data<float>()[i], own.data<float>()[i], tolerance);
  for (const auto& [from, to] :
       {std::pair{"\"relu\"", "\"gelu\""}, std::pair{"\"rope_theta\": 10000.0", "\"rope_theta\": 500.0"},
        std::pair{"\"rope_theta\": 10000.0", "\"rope_parameters\": {\"rope_theta\": 500.0}"},
        std::pair{"\"norm_epsilon\": 1e-05", "\"norm_epsilon\": 0.1"},
        std::pair{"\"sliding_window\": null", "\"sliding_window\": 2"}}) {
    const Tensor other = rows(from, to);
    double difference = 0.0;
    for (std::int64_t i = 0; i < other.count(); ++i)
      difference = std::max(difference, std::abs(double{other.data<float>()[i]} - plain.data<float>()[i]));
    EXPECT_GT(difference, 1e-4) << to;
  }
}

TEST_F(Folder, RefusesOtherModels) {
  save_model(path.string(), tiny(32));
  const std::string good = files::read_file((path / "config.json").string(), 1 << 20);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_config(text.replace(at, from.size(), to));
    EXPECT_THROW(load_language_model(path.string()), FileError) << to;
  };
  with("\"starcoder2\"", "\"gpt2\"");
  with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  with("\"vocab_size\": 13", "\"vocab_size\": 12");
  with("\"vocab_size\": 13", "\"vocab_size\": 9000000");
  with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");  // tensors are left over
  with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");  // tensors are missing
  with("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1");
  with("\"max_position_embeddings\": 4096", "\"max_position_embeddings\": 0");
  with("{", "[");
  write_config(good);
  EXPECT_NO_THROW(load_language_model(path.string()));
  EXPECT_THROW(load_model(path.string()), FileError);  // it is no translator
}

// Its config() has sizes only, and a folder of them would say that it is a Starcoder2.
TEST_F(Folder, RefusesToSaveTheModelOfASpec) {
  save_model(path.string(), tiny(32));
  const LanguageModel ours = load_language_model(path.string());
  EXPECT_NO_THROW(save_model(path.string(), ours));
  const LanguageModel same({.vocabulary = words, .stack = ours.stack().spec()},
                           [](const std::string& name, const Shape& shape) { return drawn(name, shape); });
  EXPECT_THROW(save_model((path / "other").string(), same), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path / "other"));
}

}  // namespace
}  // namespace fovea::models
