#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "fovea/core/executor.h"
#include "fovea/models/model_folder.h"
#include "train/checkpoint.h"
#include "train/tiny.h"

namespace fovea::train {
namespace {

// Everything in a checkpoint except the time that it took.
void expect_equal_checkpoints(const std::string& a, const std::string& b) {
  const files::TensorFile left = files::load_safetensors(checkpoint_path(a)),
                          right = files::load_safetensors(checkpoint_path(b));
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (std::size_t i = 0; i < left.tensors.size(); ++i) {
    ASSERT_EQ(left.tensors[i].name, right.tensors[i].name);
    EXPECT_EQ(0, std::memcmp(left.tensors[i].tensor.raw(), right.tensors[i].tensor.raw(),
                             left.tensors[i].tensor.bytes()))
        << left.tensors[i].name;
  }
}

void expect_equal_curves(const std::vector<Validation>& a, const std::vector<Validation>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].update, b[i].update);
    EXPECT_EQ(a[i].train_loss, b[i].train_loss);
    EXPECT_EQ(a[i].cross_entropy, b[i].cross_entropy);
    EXPECT_EQ(a[i].bleu, b[i].bleu);
    EXPECT_EQ(a[i].improved, b[i].improved);
  }
}

struct UseExecutor {
  explicit UseExecutor(Executor* executor) { set_default_executor(executor); }
  ~UseExecutor() { set_default_executor(nullptr); }
  UseExecutor(const UseExecutor&) = delete;
  UseExecutor& operator=(const UseExecutor&) = delete;
};

TEST(Resume, GivesTheBitsOfAnUnbrokenTrainingWhereverItStops) {
  // One thread: only the caller asks, between the batches of a validation that it takes, and of several
  // threads it takes now more and now fewer.
  const std::unique_ptr<Executor> alone = make_thread_pool(1);
  const UseExecutor use(alone.get());
  Tiny tiny;
  Listener silent;
  const auto unbroken = tiny.model();
  int times = 0;  // once a step, and between the batches of validations, the averaged one included
  const Result expected = train(*unbroken, tiny.data, tiny.options("unbroken"), Start::fresh, silent,
                                [&] { return ++times < 0; });
  ASSERT_EQ(expected.ended, Ended::finished);
  ASSERT_GT(times, 25);
  for (int stop_after = times - 1; stop_after >= 0; stop_after -= 4) {
    SCOPED_TRACE("stopped after " + std::to_string(stop_after));
    const std::string name = "broken-" + std::to_string(stop_after);
    const TrainOptions options = tiny.options(name);
    int asked = 0;
    const auto first = tiny.model();
    const Result stopped =
        train(*first, tiny.data, options, Start::fresh, silent, [&] { return asked++ == stop_after; });
    ASSERT_EQ(stopped.ended, Ended::stopped);
    const auto second = tiny.model();  // a new process starts from fresh weights
    const Result resumed = train(*second, tiny.data, options, Start::resume, silent, never);
    EXPECT_EQ(resumed.ended, Ended::finished);
    expect_equal_checkpoints(tiny.options("unbroken").folder, options.folder);
    expect_equal_curves(expected.curve, resumed.curve);
    EXPECT_EQ(bytes_of(tiny.path("unbroken") / "model.safetensors"),
              bytes_of(tiny.path(name) / "model.safetensors"));
    EXPECT_EQ(expected.averaged, resumed.averaged);
  }
}

// Products of bf16: the same bits after a stop, other weights than those of f32, and a loss that differs by
// less than another order of the batches makes.
TEST(Resume, InBf16GivesTheBitsOfAnUnbrokenTrainingAndTheLossOfF32) {
  Tiny tiny;
  Listener silent;
  const auto trained = [&](const std::string& name, std::uint64_t seed, autograd::Operands precision) {
    TrainOptions options = tiny.options(name);
    options.seed = seed;
    options.max_updates = 120;
    options.precision = precision;
    const auto model = tiny.model();
    return train(*model, tiny.data, options, Start::fresh, silent, never).curve.back().cross_entropy;
  };
  const double coarse = trained("whole", 5, autograd::Operands::bf16);
  std::vector<double> exact;
  for (const std::uint64_t seed : {5, 6, 7})
    exact.push_back(trained("f32-" + std::to_string(seed), seed, autograd::Operands::f32));
  const auto [least, most] = std::minmax_element(exact.begin(), exact.end());
  EXPECT_NE(coarse, exact[0]);
  EXPECT_NEAR(coarse, exact[0], *most - *least);

  TrainOptions options = tiny.options("parts");
  options.max_updates = 120;
  options.precision = autograd::Operands::bf16;
  const auto first = tiny.model();
  int asked = 0;
  ASSERT_EQ(train(*first, tiny.data, options, Start::fresh, silent, [&] { return asked++ == 31; }).ended,
            Ended::stopped);
  const auto other = tiny.model();
  TrainOptions f32 = options;
  f32.precision = autograd::Operands::f32;
  EXPECT_THROW(train(*other, tiny.data, f32, Start::resume, silent, never), FileError);
  const auto second = tiny.model();
  train(*second, tiny.data, options, Start::resume, silent, never);
  expect_equal_checkpoints(tiny.options("whole").folder, options.folder);
}

TEST(Resume, AFinishedTrainingGoesOnWithAHigherLimit) {
  Tiny tiny;
  Listener silent;
  const auto unbroken = tiny.model();
  train(*unbroken, tiny.data, tiny.options("unbroken"), Start::fresh, silent, never);
  // Stops at a validation's update, so that the curve has the same points.
  TrainOptions options = tiny.options("longer");
  options.max_updates = 16;
  const auto first = tiny.model();
  train(*first, tiny.data, options, Start::fresh, silent, never);
  options.max_updates = 20;
  const auto second = tiny.model();
  train(*second, tiny.data, options, Start::resume, silent, never);
  expect_equal_checkpoints(tiny.options("unbroken").folder, options.folder);
}

// A training that is killed between two saves loses only the steps since the last save.
TEST(Resume, AKilledTrainingLosesTheStepsSinceTheLastSave) {
  struct Kill {};
  struct Witness : Listener {
    int kill_at = 0;
    std::int64_t resumed_at = -1;
    void on_step(const Progress& progress) override {
      if (progress.update == kill_at) throw Kill();
    }
    void on_message(const std::string& message) override {
      const std::string words = "resumed at update ";
      if (message.starts_with(words)) resumed_at = std::stoll(message.substr(words.size()));
    }
  };
  for (int kill_at = 4; kill_at < 20; ++kill_at) {
    Tiny tiny;
    const TrainOptions options =
        tiny.options("killed");  // saves every 3 updates, and at validations, 8 and 16
    Witness witness;
    witness.kill_at = kill_at;
    const auto first = tiny.model();
    EXPECT_THROW(train(*first, tiny.data, options, Start::fresh, witness, never), Kill);
    witness.kill_at = kill_at + 1;
    const auto second = tiny.model();
    EXPECT_THROW(train(*second, tiny.data, options, Start::resume, witness, never), Kill);
    const int before = kill_at - 1;  // the step that was killed had not saved yet
    EXPECT_EQ(witness.resumed_at, std::max({before / 3 * 3, before / 8 * 8, 0})) << "killed at " << kill_at;
  }
}

TEST(Resume, ExhaustedPatienceStaysExhausted) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("patient");
  options.schedule = nn::Constant{0.0};  // nothing is learnt, so the second validation is no better
  options.patience = 1;
  const auto first = tiny.model();
  const Result ended = train(*first, tiny.data, options, Start::fresh, silent, never);
  ASSERT_EQ(ended.ended, Ended::no_improvement);
  ASSERT_EQ(ended.curve.back().update, 16);
  const auto second = tiny.model();
  const Result again = train(*second, tiny.data, options, Start::resume, silent, never);
  EXPECT_EQ(again.ended, Ended::no_improvement);
  expect_equal_curves(ended.curve, again.curve);
  options.patience = 5;
  const auto third = tiny.model();
  const Result on = train(*third, tiny.data, options, Start::resume, silent, never);
  EXPECT_EQ(on.ended, Ended::finished);
  EXPECT_EQ(on.curve.back().update, 20);
}

TEST(Resume, ACurveWithInfinitiesIsRestored) {
  Tiny tiny;
  const double infinity = std::numeric_limits<double>::infinity();
  const auto model = tiny.model();
  nn::Adam adam(model->parameters(), {});
  const std::string folder = tiny.path("infinite").string();
  std::filesystem::create_directories(folder);
  adam.set_steps(4);
  const TrainState state{.update = 4,
                         .curve = {{.update = 4,
                                    .train_loss = -infinity,
                                    .cross_entropy = infinity,
                                    .perplexity = std::nan(""),
                                    .improved = true}}};
  save_checkpoint(folder, state, "a fingerprint", model->parameters(), adam);
  const TrainState back = load_checkpoint(folder, "a fingerprint", model->parameters(), adam);
  ASSERT_EQ(back.curve.size(), 1u);
  EXPECT_EQ(back.curve[0].train_loss, -infinity);
  EXPECT_EQ(back.curve[0].cross_entropy, infinity);
  EXPECT_TRUE(std::isnan(back.curve[0].perplexity));
}

TEST(Resume, AnImpossibleStateIsRefused) {
  Tiny tiny;
  const auto model = tiny.model();
  nn::Adam adam(model->parameters(), {});
  const std::string folder = tiny.path("senseless").string();
  std::filesystem::create_directories(folder);
  const auto refused = [&](const TrainState& state, const std::string& named) {
    save_checkpoint(folder, state, "a fingerprint", model->parameters(), adam);
    try {
      load_checkpoint(folder, "a fingerprint", model->parameters(), adam);
      ADD_FAILURE() << named << " was accepted";
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  refused({.update = -1}, "update is -1");
  refused({.epoch = -7}, "epoch is -7");
  refused({.batch = -2}, "batch is -2");
  refused({.seconds = -1.0}, "seconds is -1");
  refused({.without_improvement = -1}, "without_improvement is -1");
  refused({.curve = {{.update = 4}}}, "the first validation was not the best");
  refused({.snapshots = {8, -8}}, "a snapshot is -8");
  refused({.update = 3}, "adam_steps is 0, update 3");
  refused({.curve = {{.update = 1, .improved = true}}}, "a validation's update is 1");
  refused({.epoch = std::int64_t{1} << 60}, "epoch is");
  refused({.snapshots = {std::int64_t{1} << 60}}, "a snapshot is");
  refused({.curve = {{.epoch = -3, .improved = true}}}, "a validation's epoch is -3");
}

TEST(Resume, DamagedCheckpointsAreRefusedByName) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("damaged");
  options.max_updates = 3;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, silent, never);
  const std::string path = checkpoint_path(options.folder), whole = bytes_of(path);
  ASSERT_GT(whole.size(), 1000u);
  const auto expect_refused = [&](const std::string& bytes, const std::string& what) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto fresh = tiny.model();
    try {
      train(*fresh, tiny.data, options, Start::resume, silent, never);
      ADD_FAILURE() << what << " was accepted";
    } catch (const FileError& error) {
      EXPECT_EQ(error.file(), path) << what;
    }
    EXPECT_EQ(bytes_of(path), bytes) << "the file is left for its owner to look at";
  };
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8},
                                   std::size_t{200}, whole.size() / 2, whole.size() - 1}) {
    expect_refused(whole.substr(0, length), "cut to " + std::to_string(length));
  }
  expect_refused(whole + "x", "a byte too many");
  std::string junk(4096, '\0');
  for (std::size_t i = 0; i < junk.size(); ++i) junk[i] = static_cast<char>(i * 37 + i / 256);
  expect_refused(junk, "junk");
  std::string huge = whole;
  huge[7] = '\x7f';  // the header's size, near 2^63
  expect_refused(huge, "a header larger than the file");
}

// The last tensor of a file is looked up before the first is copied.
TEST(Resume, ATensorThatIsMissingLeavesTheTrainingAsItWas) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("missing");
  options.max_updates = 3;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, silent, never);
  const std::string path = checkpoint_path(options.folder);
  files::TensorFile file = files::load_safetensors(path);
  file.tensors.back().tensor = Tensor::zeros(DType::f32, {1, 1, 1});
  files::save_safetensors(path, file);
  const auto fresh = tiny.model();
  nn::Adam adam(fresh->parameters(), {});
  const Tensor before = fresh->parameters().all().front().value.clone();
  EXPECT_THROW(
      load_checkpoint(options.folder, file.metadata.at("fovea.fingerprint"), fresh->parameters(), adam),
      FileError);
  const Tensor& after = fresh->parameters().all().front().value;
  for (std::int64_t i = 0; i < before.count(); ++i)
    EXPECT_EQ(after.data<float>()[i], before.data<float>()[i]);
  EXPECT_EQ(adam.steps(), 0);
}

struct Messages : Listener {
  void on_message(const std::string& message) override { all += message + "\n"; }
  std::string all;
};

// The options decide the weights: the first call has the original options, each other call one that
// differs.
TEST(Resume, OtherOptionsThanTheTrainingBeganWithAreRefusedByName) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("options");
  options.max_updates = 2;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, silent, never);
  const auto refusal = [&](const TrainOptions& other, const Data& data) -> std::string {
    const auto fresh = tiny.model();
    try {
      train(*fresh, data, other, Start::resume, silent, never);
    } catch (const FileError& error) {
      EXPECT_EQ(error.file(), options.folder + "/training.json");
      return error.what();
    }
    return "accepted";
  };
  const auto refused = [&](auto&& change, const std::string& words) {
    TrainOptions other = options;
    change(other);
    const std::string what = refusal(other, tiny.data);
    EXPECT_NE(what.find(words), std::string::npos) << what;
  };
  refused([](TrainOptions& o) { o.batch_words = 65; }, "batch_words is 65 and was 64");
  refused([](TrainOptions& o) { o.seed = 6; }, "seed is 6 and was 5");
  refused([](TrainOptions& o) { o.smoothing = 0.2f; }, "smoothing is 0.2 and was 0.1");
  refused([](TrainOptions& o) { o.precision = autograd::Operands::bf16; },
          "precision is \"bf16\" and was \"f32\"");
  refused([](TrainOptions& o) { o.metric = Metric::perplexity; },
          "metric is \"perplexity\" and was \"bleu\"");
  refused([](TrainOptions& o) { o.adam.beta2 = 0.98; }, "beta2 is 0.98 and was 0.999");
  refused([](TrainOptions& o) { o.adam.clip_norm = 1; }, "clip_norm is 1 and was 0");
  refused(
      [](TrainOptions& o) {
        o.schedule = nn::InverseSquareRoot{0.02, 5};
      },
      "learn_rate is 0.02 and was 0.01");
  refused([](TrainOptions& o) { o.schedule = nn::InverseSquareRoot{0.01, 6}; }, "warmup is 6 and was 5");
  refused([](TrainOptions& o) { o.schedule = nn::Constant{0.01}; },
          "schedule is \"constant\" and was \"inverse-square-root\"");
  Data other = tiny.data;
  other.train.pop_back();
  EXPECT_NE(refusal(options, other).find("train_data is other data"), std::string::npos);
  other = tiny.data;
  other.valid[0].target.push_back(5);
  EXPECT_NE(refusal(options, other).find("valid_data is other data"), std::string::npos);
  EXPECT_EQ(refusal(options, tiny.data), "accepted");
}

TEST(Resume, OtherLimitsApplyAndAreReported) {
  Tiny tiny;
  Messages messages;
  TrainOptions options = tiny.options("limits");
  options.max_updates = 2;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, messages, never);
  EXPECT_EQ(messages.all, "");
  options.max_updates = 3;
  options.patience = 9;
  const auto second = tiny.model();
  const Result result = train(*second, tiny.data, options, Start::resume, messages, never);
  EXPECT_EQ(result.curve.back().update, 3);
  EXPECT_NE(messages.all.find("max_updates is now 3, was 2\n"), std::string::npos) << messages.all;
  EXPECT_NE(messages.all.find("patience is now 9, was 0\n"), std::string::npos) << messages.all;
  EXPECT_EQ(messages.all.find("save_every"), std::string::npos) << messages.all;
  // The next resume compares with the new limits.
  messages.all.clear();
  const auto third = tiny.model();
  train(*third, tiny.data, options, Start::resume, messages, never);
  EXPECT_EQ(messages.all.find("is now"), std::string::npos) << messages.all;
}

TEST(Resume, ARecordThatIsMissingOrDamagedIsRefusedByName) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("record");
  options.max_updates = 2;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, silent, never);
  const std::string path = options.folder + "/training.json", whole = bytes_of(path);
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto fresh = tiny.model();
    try {
      train(*fresh, tiny.data, options, Start::resume, silent, never);
      ADD_FAILURE() << words << ": accepted";
    } catch (const FileError& error) {
      EXPECT_EQ(error.file(), path);
      const std::string what = error.what();
      EXPECT_NE(what.find(words), std::string::npos) << what;
      EXPECT_LT(what.size(), 1500u);
    }
  };
  refused("", "syntax error");
  refused(whole.substr(0, whole.size() / 2), "syntax error");
  refused("[]", "got an array");
  refused("{}", "beta1 is not recorded");
  refused("{\"options\": {\"seed\": " + std::string(100'000, '7') + "}}", "… (100,000 characters)");
  refused("{\"options\": " + std::string(100'000, '{'), "expected a key");
  refused("{\"curve\": " + std::string(100'000, '['), "nest too deep");
  std::filesystem::remove(path);
  const auto fresh = tiny.model();
  EXPECT_THROW(train(*fresh, tiny.data, options, Start::resume, silent, never), FileError);
  // Formatted as a person may write it.
  std::string edited = whole;
  const std::size_t at = edited.find("0.01");
  ASSERT_NE(at, std::string::npos);
  edited.replace(at, 4, "1e-2");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << edited;
  EXPECT_NO_THROW(train(*fresh, tiny.data, options, Start::resume, silent, never));
  // As it was written before there was a choice of the precision, which was f32.
  std::string before = whole;
  const std::string line = "\"precision\": \"f32\",";
  ASSERT_NE(before.find(line), std::string::npos);
  before.erase(before.find(line), line.size());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << before;
  const auto f32 = tiny.model(), bf16 = tiny.model();
  EXPECT_NO_THROW(train(*f32, tiny.data, options, Start::resume, silent, never));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << before;
  options.precision = autograd::Operands::bf16;
  try {
    train(*bf16, tiny.data, options, Start::resume, silent, never);
    ADD_FAILURE() << "resumed in another precision";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("precision is \"bf16\" and was \"f32\""), std::string::npos)
        << error.what();
  }
}

// A training leaves a record even if it is killed before its first checkpoint, or between checkpoint and
// record.
TEST(Resume, TheRecordIsThereBeforeTheFirstCheckpoint) {
  Tiny tiny;
  const TrainOptions options = tiny.options("early");
  struct Look : Listener {
    explicit Look(std::string folder) : folder(std::move(folder)) {}
    void on_step(const Progress& p) override {
      if (p.update != 1) return;
      EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder)));
      EXPECT_TRUE(std::filesystem::exists(folder + "/training.json"));
    }
    std::string folder;
  } look(options.folder);
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, look, never);
}

TEST(Resume, AnotherTrainingsCheckpointIsRefused) {
  Tiny tiny;
  Listener silent;
  TrainOptions options = tiny.options("other");
  options.max_updates = 2;
  const auto model = tiny.model();
  train(*model, tiny.data, options, Start::fresh, silent, never);
  TrainOptions seed = options;
  seed.seed = 6;
  EXPECT_THROW(train(*model, tiny.data, seed, Start::resume, silent, never), FileError);
  Data fewer = tiny.data;
  fewer.train.pop_back();
  EXPECT_THROW(train(*model, fewer, options, Start::resume, silent, never), FileError);
  TrainOptions nowhere = tiny.options("nowhere");
  EXPECT_THROW(train(*model, tiny.data, nowhere, Start::resume, silent, never), FileError);
}

}  // namespace
}  // namespace fovea::train
