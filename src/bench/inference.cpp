#include "bench/inference.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "bench/measure.h"
#include "bench/shares.h"
#include "bench/timing.h"
#include "fovea/core/error.h"
#include "fovea/core/memory.h"
#include "fovea/core/profile.h"
#include "fovea/models/batcher.h"
#include "fovea/models/batches.h"
#include "fovea/models/decoding.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::bench {
namespace {

using autograd::WeightType;

// A model and what it is asked to do.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual nn::ParameterSet& parameters() = 0;
  /// Does the whole task; returns the tokens that were written.
  virtual std::int64_t work(std::int64_t width) = 0;
  virtual std::int64_t units(std::int64_t width) const = 0;  ///< sentences, or texts
  /// What rivals prepare, who read the model from `folder`.
  virtual nlohmann::json rival_request(const std::filesystem::path& folder) = 0;
};

class Translating final : public Worker {
 public:
  Translating(std::unique_ptr<models::SequenceToSequence> model, const InferenceBench& bench)
      : model_(std::move(model)), batch_(bench.batch) {
    for (std::int64_t n = 0; n < bench.sentences; ++n) {
      auto& ids = sentences_.emplace_back();
      for (std::int64_t t = drawn(1, n, 8, 20); t > 0; --t)
        ids.push_back(static_cast<std::int32_t>(drawn(2, n * 64 + t, 4, bench.vocabulary - 1)));
    }
    for (const auto& ids : sentences_) lengths_.push_back(std::ssize(ids));
  }

  nn::ParameterSet& parameters() override { return model_->parameters(); }
  std::int64_t units(std::int64_t) const override { return std::ssize(sentences_); }
  std::int64_t work(std::int64_t width) override {
    std::atomic<std::int64_t> tokens = 0;
    models::for_batches(lengths_, batch_, [&](std::span<const std::size_t> own) {
      const std::vector<Ids> sources = sources_of(own);
      translate(sources, width);
      tokens += std::ssize(sources.back()) * std::ssize(sources);
    });
    return tokens;
  }
  nlohmann::json rival_request(const std::filesystem::path& folder) override {
    models::save_model(folder.string(), *model_);
    std::mutex mutex;
    nlohmann::json batches = nlohmann::json::array(), written = nlohmann::json::array();
    models::for_batches(lengths_, batch_, [&](std::span<const std::size_t> own) {
      const std::vector<Ids> sources = sources_of(own);
      std::vector<Ids> greedy;
      for (const auto& hypotheses : translate(sources, 1)) greedy.push_back(hypotheses.front().ids);
      const std::lock_guard lock(mutex);
      batches.push_back(sources);
      written.push_back(greedy);
    });
    return {{"model", folder.string()},
            {"vocabulary", model_->vocabulary()},
            {"batches", batches},
            {"written", written}};
  }

 private:
  using Ids = std::vector<std::int32_t>;

  std::vector<Ids> sources_of(std::span<const std::size_t> own) const {
    std::vector<Ids> sources;
    for (const std::size_t i : own) sources.push_back(sentences_[i]);
    return sources;
  }
  // Each translation is as long as the last source, which is the longest.
  std::vector<std::vector<models::Hypothesis>> translate(const std::vector<Ids>& sources,
                                                         std::int64_t width) {
    return models::decode(*model_, sources,
                          {.beam_size = static_cast<int>(width),
                           .exact_length = std::ssize(sources.back()),
                           .alignments = false,
                           .log_probabilities = false});
  }

  // A turn finds the memory of the one before it, as a rival's does, whose process keeps what it has.
  KeepMemory keep_;
  std::unique_ptr<models::SequenceToSequence> model_;
  std::int64_t batch_;
  std::vector<std::vector<std::int32_t>> sentences_;
  std::vector<std::int64_t> lengths_;
};

models::LanguageModelConfig with_positions(models::LanguageModelConfig config, const InferenceBench& bench) {
  config.positions = std::max(config.positions, bench.prompt + bench.tokens);
  return config;
}

class Writing final : public Worker {
 public:
  Writing(const models::LanguageModelConfig& config, const InferenceBench& bench)
      : model_(with_positions(config, bench), 1),
        vocabulary_(config.vocabulary),
        prompt_(bench.prompt),
        tokens_(bench.tokens),
        widest_(*std::ranges::max_element(bench.widths)),
        threads_(bench.threads) {}

  nn::ParameterSet& parameters() override { return model_.parameters(); }
  std::int64_t units(std::int64_t width) const override { return width; }
  std::int64_t work(std::int64_t width) override {
    if (width == 1) {
      models::generate(model_, prompt(0), {.temperature = 0.0, .length = tokens_});
    } else {
      write(width, {});
    }
    return width * tokens_;
  }
  nlohmann::json rival_request(const std::filesystem::path& folder) override {
    models::save_model(folder.string(), model_);
    std::vector<std::vector<std::int32_t>> prompts, written(static_cast<std::size_t>(widest_));
    for (std::int64_t n = 0; n < widest_; ++n) prompts.push_back(prompt(n));
    write(widest_, [&](std::int64_t text, const models::Answer& answer) {
      written[static_cast<std::size_t>(text)] = answer.generated.ids;
    });
    return {{"model", folder.string()}, {"prompts", prompts}, {"written", written}, {"threads", threads_}};
  }

 private:
  void write(std::int64_t texts, const std::function<void(std::int64_t, const models::Answer&)>& done) {
    models::Batcher batcher(model_);
    for (std::int64_t n = 0; n < texts; ++n) {
      models::Request request{.prompt = prompt(n), .sample = {.temperature = 0.0, .length = tokens_}};
      if (done) request.done = [&done, n](const models::Answer& answer) { done(n, answer); };
      batcher.submit(std::move(request));
    }
    batcher.run();
  }
  std::vector<std::int32_t> prompt(std::int64_t text) const {
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < prompt_; ++t)
      ids.push_back(static_cast<std::int32_t>(drawn(3, text * prompt_ + t, 0, vocabulary_ - 1)));
    return ids;
  }
  models::LanguageModel model_;
  std::int64_t vocabulary_, prompt_, tokens_, widest_;
  std::vector<int> threads_;
};

std::unique_ptr<Worker> translator(const std::string& name, const InferenceBench& bench) {
  if (name == "transformer")
    return std::make_unique<Translating>(models::make_transformer({.vocabulary = bench.vocabulary}, 1),
                                         bench);
  if (name == "base")
    return std::make_unique<Translating>(models::make_transformer({.vocabulary = bench.vocabulary,
                                                                   .dim = 512,
                                                                   .feed_forward = 2048,
                                                                   .heads = 8,
                                                                   .encoder_layers = 6,
                                                                   .decoder_layers = 6},
                                                                  1),
                                         bench);
  if (name == "rnn")
    return std::make_unique<Translating>(
        models::make_rnn({.vocabulary = bench.vocabulary, .embedding = 128}, 1), bench);
  throw InvalidArgument("measure_translation", "models", "transformer, base or rnn", name);
}

std::unique_ptr<Worker> writer(const std::string& name, const InferenceBench& bench) {
  // Of 0.46 million parameters, as in docs/results.md.
  if (name == "characters")
    return std::make_unique<Writing>(
        models::LanguageModelConfig{.vocabulary = 256, .dim = 96, .feed_forward = 384, .heads = 4}, bench);
  if (name == "small")
    return std::make_unique<Writing>(
        models::LanguageModelConfig{
            .vocabulary = 32000, .dim = 576, .feed_forward = 2304, .heads = 9, .layers = 12},
        bench);
  throw InvalidArgument("measure_generation", "models", "characters or small", name);
}

double seconds_of(Worker& worker, std::int64_t width, std::int64_t* tokens) {
  const auto begin = std::chrono::steady_clock::now();
  *tokens = worker.work(width);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Turns {
  Peaks peaks;
  std::vector<double> seconds = {};  // of the task
  RivalTurns rivals = {};            // likewise
};

void describe(Worker& worker, InferenceRow& row, const Peaks& peaks) {
  Profile profile(0);
  worker.work(row.width);
  profile.stop();
  Shares shares = shares_of(profile, row.threads);
  row.parts = std::move(shares.parts);
  row.share = peaks.least_seconds(shares) / row.seconds;
}

void measure_all(
    const InferenceBench& bench,
    const std::function<std::unique_ptr<Worker>(const std::string&, const InferenceBench&)>& make,
    const std::function<void(const InferenceRow&)>& tell) {
  RivalsOptions options = bench.rivals;
  options.threads = 1;  // of OpenMP: batches run side by side
  Rivals rivals(options);
  for (const std::string& name : bench.models) {
    const std::unique_ptr<Worker> worker = make(name, bench);
    const WorkFolder folder;
    const Beside beside(rivals, options, [&] { return worker->rival_request(folder.path()); });
    std::map<std::tuple<std::int64_t, WeightType, int>, Turns> turns;
    std::map<std::int64_t, std::int64_t> tokens;
    // Weights of one type are packed once a round. Round -1 warms memory, threads and code.
    for (std::int64_t round = -1; round < bench.rounds; ++round) {
      for (const WeightType weights : bench.weights) {
        worker->parameters().pack(weights);
        for (const std::int64_t width : bench.widths) {
          for (const int threads : bench.threads) {
            nn::use_threads(threads);
            const double seconds = seconds_of(*worker, width, &tokens[width]);
            if (round < 0) continue;
            Turns& turn =
                turns.try_emplace({width, weights, threads}, Turns{Peaks(products_of(weights), threads)})
                    .first->second;
            turn.seconds.push_back(seconds);
            turn.peaks.measure();
            beside.run(1, {{"threads", threads}, {"width", width}}, turn.rivals);
          }
        }
      }
    }
    for (const WeightType weights : bench.weights) {
      worker->parameters().pack(weights);
      for (const std::int64_t width : bench.widths) {
        for (const int threads : bench.threads) {
          nn::use_threads(threads);
          const Turns& turn = turns.at({width, weights, threads});
          InferenceRow row{
              .model = name, .weights = weights, .width = width, .threads = threads, .parts = {}};
          row.rivals = beside.times(turn.rivals);
          row.seconds = median(turn.seconds);
          row.tokens_per_second = static_cast<double>(tokens[width]) / row.seconds;
          row.per_second = static_cast<double>(worker->units(width)) / row.seconds;
          describe(*worker, row, turn.peaks);
          tell(row);
        }
      }
    }
  }
  nn::use_threads(0);
}

}  // namespace

std::vector<std::string> translation_models() {
  return {"transformer", "base", "rnn"};
}
RivalsOptions generation_rivals() {
  return {.python = "none",
          .script = "bench/generate_rivals.py",
          .names = {"transformers f32", "ctranslate2 f32", "ctranslate2 int8"},
          .without = {}};
}
std::vector<std::string> generation_models() {
  return {"characters", "small"};
}

void measure_translation(const InferenceBench& bench, const std::function<void(const InferenceRow&)>& tell) {
  measure_all(bench, translator, tell);
}

void measure_generation(const InferenceBench& bench, const std::function<void(const InferenceRow&)>& tell) {
  measure_all(bench, writer, tell);
}

}  // namespace fovea::bench
