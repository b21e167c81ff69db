#include "fovea/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "fovea/core/executor.h"
#include "fovea/models/model_folder.h"
#include "train/checkpoint.h"
#include "train/tiny.h"

namespace fovea::train {
namespace {

TEST(Trainer, LearnsAndReportsEveryStep) {
  Tiny tiny;
  struct Recorder : Listener {
    void on_step(const Progress& p) override { steps.push_back(p); }
    void on_validation(const Validation& v) override { validations.push_back(v); }
    std::vector<Progress> steps;
    std::vector<Validation> validations;
  } recorder;
  TrainOptions options = tiny.options("learns");
  options.max_updates = 60;
  const auto model = tiny.model();
  const Result result = train(*model, tiny.data, options, Start::fresh, recorder, never);
  ASSERT_EQ(recorder.steps.size(), 60u);
  EXPECT_EQ(recorder.validations.size(), 60u / 8u + 1u);  // and one at the end
  // An untrained model is uniform over the words: log of the vocabulary.
  EXPECT_NEAR(recorder.steps.front().loss, std::log(static_cast<double>(model->vocabulary())), 0.5);
  EXPECT_LT(result.curve.back().cross_entropy, recorder.steps.front().loss - 1.0);
  EXPECT_NEAR(result.curve.back().perplexity, std::exp(result.curve.back().cross_entropy), 1e-6);
  EXPECT_EQ(recorder.steps[4].learning_rate, 0.01);  // the end of the warm-up
}

struct Rates : Listener {
  void on_step(const Progress& p) override { all.push_back(p.learning_rate); }
  std::vector<double> all;
};

TEST(Trainer, ACosineWithoutAnEndFallsToZeroAtTheLimitOfUpdates) {
  Tiny tiny;
  Rates rates;
  TrainOptions options = tiny.options("cosine");
  options.schedule = nn::WarmupCosine{.peak = 0.01, .warmup = 5};
  train(*tiny.model(), tiny.data, options, Start::fresh, rates, never);
  const nn::Schedule whole = nn::WarmupCosine{.peak = 0.01, .warmup = 5, .updates = 20};
  ASSERT_EQ(rates.all.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_EQ(rates.all[i], nn::learning_rate(whole, static_cast<std::int64_t>(i) + 1));
}

TEST(Trainer, ACosineWithoutUpdatesFallsToZeroAtTheLimitOfMinutes) {
  Tiny tiny;
  Rates rates;
  Listener silent;
  TrainOptions options = tiny.options("minutes");
  options.schedule = nn::WarmupCosine{.peak = 0.01, .warmup = 3};
  options.max_updates = 0;
  options.max_minutes = 1.0 / 60.0;
  train(*tiny.model(), tiny.data, options, Start::fresh, rates, never);
  // The last update began before the end and takes a hundredth of the second: what is left of half a cosine
  // is less than a thousandth. Where updates are slower the number of them only gets smaller.
  ASSERT_FALSE(rates.all.empty());
  EXPECT_LT(rates.all.back(), 1e-2 * 0.01);
  // The minutes decide the weights, so a resumed training has the same.
  options.max_minutes *= 2.0;
  EXPECT_THROW(train(*tiny.model(), tiny.data, options, Start::resume, silent, never), FileError);
  options.max_minutes = 0.0;
  options.folder = tiny.path("endless").string();
  EXPECT_THROW(train(*tiny.model(), tiny.data, options, Start::fresh, silent, never), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(options.folder));
}

TEST(Trainer, PatienceEndsATrainingThatDoesNotImprove) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("patience");
  options.schedule = nn::Constant{0.0};  // all validations are equal, so only the first one is an improvement
  options.validate_every = 2;
  options.patience = 3;
  options.average = 0;
  const auto model = tiny.model();
  const Result result = train(*model, tiny.data, options, Start::fresh, silent, never);
  EXPECT_EQ(result.ended, Ended::no_improvement);
  EXPECT_EQ(result.curve.size(), 4u);
  EXPECT_TRUE(result.curve[0].improved);
  EXPECT_EQ(result.final.update, 2);
}

// A training that is killed before it has saved a checkpoint goes on from the one before.
TEST(Trainer, ASnapshotStaysUntilNoCheckpointNamesIt) {
  Tiny tiny;
  TrainOptions options = tiny.options("snapshots");
  options.validate_every = 2;
  options.save_every = 0;
  struct Blocks : Listener {
    std::filesystem::path checkpoint;
    void on_validation(const Validation& v) override {
      if (v.update != 4) return;
      std::filesystem::rename(checkpoint, checkpoint.string() + ".kept");
      std::filesystem::create_directories(checkpoint / "in the way");
    }
  } blocks;
  blocks.checkpoint = checkpoint_path(options.folder);
  const auto model = tiny.model();
  EXPECT_THROW(train(*model, tiny.data, options, Start::fresh, blocks, never), FileError);
  for (const std::int64_t update : {2, 4, 6})
    EXPECT_TRUE(std::filesystem::exists(snapshot_path(options.folder, update))) << update;
}

TEST(Trainer, TheFolderHoldsTheBestOfSingleAndAveragedWeights) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("average");
  options.metric = Metric::perplexity;
  const auto model = tiny.model();
  const Result result = train(*model, tiny.data, options, Start::fresh, silent, never);
  ASSERT_EQ(result.curve.size(), 3u);
  // Only the last two snapshots are kept. The weights are their mean if that is the better model.
  EXPECT_FALSE(std::filesystem::exists(snapshot_path(options.folder, 8)));
  const files::TensorFile a = files::load_safetensors(snapshot_path(options.folder, 16)),
                          b = files::load_safetensors(snapshot_path(options.folder, 20));
  const auto mean = tiny.model();
  for (nn::Parameter& parameter : mean->parameters().all()) {
    const float *x = a.find(parameter.name)->data<float>(), *y = b.find(parameter.name)->data<float>();
    for (std::int64_t i = 0; i < parameter.value.count(); ++i)
      parameter.value.data<float>()[i] = x[i] / 2 + y[i] / 2;
  }
  const auto cross_entropy = [&](models::SequenceToSequence& m) {
    const auto stats = evaluate(m, tiny.data.valid, 64);
    return -stats.log_likelihood / static_cast<double>(stats.tokens);
  };
  const double averaged = cross_entropy(*mean);
  double best = result.curve[0].cross_entropy;
  for (const Validation& v : result.curve) best = std::min(best, v.cross_entropy);
  EXPECT_EQ(result.averaged, averaged < best);
  const auto loaded = models::load_model(options.folder);
  EXPECT_NEAR(cross_entropy(*loaded), std::min(best, averaged), 1e-6);
  EXPECT_NEAR(cross_entropy(*model), std::min(best, averaged), 1e-6);
  // A resumed training of no more updates averages again, and refuses the snapshot of another model.
  files::TensorFile other;
  for (const files::NamedTensor& one : a.tensors)
    other.tensors.push_back({one.name, Tensor::zeros(DType::f32, {1, 1, 1})});
  files::save_safetensors(snapshot_path(options.folder, 16), other);
  try {
    train(*tiny.model(), tiny.data, options, Start::resume, silent, never);
    ADD_FAILURE() << "a snapshot of another model was read";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("is missing or has another shape than"), std::string::npos)
        << error.what();
  }
}

TEST(Trainer, AValueThatIsNotFiniteStopsWithTheStepAndTheLayer) {
  Tiny tiny;
  TrainOptions options = tiny.options("nan");
  const auto model = tiny.model();
  struct Poison : Listener {
    explicit Poison(nn::ParameterSet& set) : set(set) {}
    void on_step(const Progress& p) override {
      if (p.update == 4) set.all().back().value.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    }
    nn::ParameterSet& set;
  } poison(model->parameters());
  try {
    train(*model, tiny.data, options, Start::fresh, poison, never);
    FAIL() << "trained on";
  } catch (const TrainingError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("update 5"), std::string::npos) << what;
    bool named = false;
    for (const nn::Parameter& parameter : model->parameters().all())
      named = named || what.find(parameter.name) != std::string::npos;
    EXPECT_TRUE(named) << what;
  }
  // The checkpoint of update 3 is whole: the training goes on from there.
  Listener silent;
  const auto again = tiny.model();
  const Result result = train(*again, tiny.data, options, Start::resume, silent, never);
  EXPECT_EQ(result.ended, Ended::finished);
  EXPECT_TRUE(std::isfinite(result.final.cross_entropy));
}

TEST(Trainer, NothingToTrainOnIsRefused) {
  Tiny tiny;
  Listener silent;
  const auto model = tiny.model();
  Data none = tiny.data;
  none.train.clear();
  EXPECT_THROW(train(*model, none, tiny.options("none"), Start::fresh, silent, never), InvalidArgument);
  none = tiny.data;
  none.valid.clear();
  EXPECT_THROW(train(*model, none, tiny.options("none"), Start::fresh, silent, never), InvalidArgument);
}

TEST(TranslateAll, AnswersInTheOrderOfTheSources) {
  Tiny tiny;
  const auto model = tiny.model();
  std::vector<std::vector<std::int32_t>> sources;
  for (const Example& example : tiny.data.valid) sources.push_back(example.source);
  const auto together = translate_all(*model, sources, *tiny.data.tokenizer, 1, 1.0);
  for (std::size_t i = 0; i < sources.size(); ++i)
    EXPECT_EQ(translate_all(*model, {sources[i]}, *tiny.data.tokenizer, 1, 1.0)[0], together[i]) << i;
  EXPECT_EQ(translate_all(*model, {{}}, *tiny.data.tokenizer, 1, 1.0)[0], "");
}

// The sums of the batches in their order, one after the other.
autograd::CrossEntropyStats evaluated_one_by_one(models::SequenceToSequence& model,
                                                 const std::vector<Example>& examples) {
  autograd::CrossEntropyStats total;
  for (const auto& indices : make_batches(examples, 64, 0, 0)) {
    nn::Context context;
    autograd::CrossEntropyStats stats;
    model.loss(context, gather_batch(examples, indices), {}, &stats);
    total += stats;
  }
  return total;
}

TEST(Validation, HasTheSameBitsForAnyNumberOfThreads) {
  Tiny tiny;
  const auto model = tiny.model();
  model->parameters().pack();
  std::vector<std::vector<std::int32_t>> sources;
  for (const Example& example : tiny.data.train) sources.push_back(example.source);
  const autograd::CrossEntropyStats expected = evaluated_one_by_one(*model, tiny.data.train);
  std::vector<std::string> translations;
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    const autograd::CrossEntropyStats stats = evaluate(*model, tiny.data.train, 64);
    EXPECT_EQ(stats.log_likelihood, expected.log_likelihood) << threads;
    EXPECT_EQ(stats.loss, expected.loss) << threads;
    EXPECT_EQ(stats.tokens, expected.tokens) << threads;
    const auto now = translate_all(*model, sources, *tiny.data.tokenizer, 2, 1.0);
    if (translations.empty()) translations = now;
    EXPECT_EQ(now, translations) << threads;
    set_default_executor(nullptr);
  }
}

// A caller's function may belong to its thread, such as one of an interpreter.
TEST(Validation, CallsBetweenBatchesInTheCallersThreadAlone) {
  Tiny tiny;
  const auto model = tiny.model();
  const auto pool = make_thread_pool(5);
  set_default_executor(pool.get());
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  bool elsewhere = false;
  const auto between = [&] {
    ++calls;
    elsewhere = elsewhere || std::this_thread::get_id() != caller;
  };
  std::vector<std::vector<std::int32_t>> sources;
  for (const Example& example : tiny.data.train) sources.push_back(example.source);
  evaluate(*model, tiny.data.train, 16, between);
  EXPECT_GT(calls, 0);
  translate_all(*model, sources, *tiny.data.tokenizer, 1, 1.0, between);
  EXPECT_FALSE(elsewhere);
  struct Stop {};
  const auto stop = [&] {
    if (std::this_thread::get_id() == caller) throw Stop{};
  };
  EXPECT_THROW(evaluate(*model, tiny.data.train, 16, stop), Stop);
  set_default_executor(nullptr);
}

TEST(Validation, LeavesNoPackedWeights) {
  Tiny tiny;
  struct Packed : Listener {
    explicit Packed(const nn::ParameterSet& set) : set(set) {}
    void on_validation(const Validation&) override {
      for (const nn::Parameter& parameter : set.all()) EXPECT_FALSE(parameter.packed) << parameter.name;
      ++validations;
    }
    const nn::ParameterSet& set;
    int validations = 0;
  };
  const auto model = tiny.model();
  Packed packed(model->parameters());
  train(*model, tiny.data, tiny.options("packed"), Start::fresh, packed, never);
  EXPECT_EQ(packed.validations, 3);
  for (const nn::Parameter& parameter : model->parameters().all()) EXPECT_FALSE(parameter.packed);
}

}  // namespace
}  // namespace fovea::train
