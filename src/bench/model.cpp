#include "bench/model.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "bench/shares.h"
#include "bench/timing.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/sequence_to_sequence.h"
#include "fovea/models/text_encoder.h"

namespace fovea::bench {
namespace {

using autograd::WeightType;
using Ids = std::vector<std::int32_t>;

Ids sequence_of(std::int64_t number, std::int64_t length) {
  Ids ids;
  for (std::int64_t n = 0; n < length; ++n) ids.push_back(bench_id(number, n));
  return ids;
}

// A model at its two tasks.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual void read(const std::vector<Ids>& sequences) = 0;
  /// Writes so many tokens behind a prompt. An encoder writes none.
  virtual Ids write(const Ids& prompt, std::int64_t tokens) = 0;
};

class Encoding final : public Worker {
 public:
  Encoding(const models::ModelFolder& folder, WeightType weights) : model_(folder.text_encoder(weights)) {}
  void read(const std::vector<Ids>& sequences) override {
    nn::Context inference;
    model_.hidden(inference, sequences);
  }
  Ids write(const Ids&, std::int64_t) override { return {}; }

 private:
  models::TextEncoder model_;
};

class Continuing final : public Worker {
 public:
  Continuing(const models::ModelFolder& folder, WeightType weights)
      : model_(folder.language_model(weights)) {}
  void read(const std::vector<Ids>& sequences) override {
    // Sequences of one length as they are, others one behind the other, as `fovea generate` reads prompts.
    if (std::ranges::all_of(sequences, [&](const Ids& ids) { return ids.size() == sequences[0].size(); })) {
      nn::Context inference;
      model_.hidden(inference, models::pad(sequences));
      return;
    }
    KvCache cache({.layers = model_.cache_layers()});
    std::vector<Sequence> kept;
    std::vector<models::LanguageModel::Next> next;
    for (std::size_t i = 0; i < sequences.size(); ++i) kept.push_back(cache.start());
    for (std::size_t i = 0; i < sequences.size(); ++i)
      next.push_back({.sequence = &kept[i], .ids = sequences[i]});
    model_.extend(next, cache);
  }
  Ids write(const Ids& prompt, std::int64_t tokens) override {
    return models::generate(model_, prompt, {.temperature = 0.0, .length = tokens}).ids;
  }

 private:
  models::LanguageModel model_;
};

class Translating final : public Worker {
 public:
  Translating(const models::ModelFolder& folder, WeightType weights)
      : model_(folder.sequence_to_sequence(weights)), start_(folder.decoder_start()) {}
  void read(const std::vector<Ids>& sequences) override {
    const models::Padded padded = models::pad(sequences);
    model_->start(padded.ids, padded.length, padded.lengths);
  }
  Ids write(const Ids& prompt, std::int64_t tokens) override {
    const std::int64_t lengths[] = {std::ssize(prompt)};
    const auto state = model_->start(prompt, std::ssize(prompt), lengths);
    models::Generated written;
    for (std::int32_t last = start_; std::ssize(written.ids) < tokens; last = written.ids.back()) {
      const Tensor next = model_->logits(model_->advance(*state, {&last, 1}));
      models::write_next({next.data<float>(), static_cast<std::size_t>(next.count())}, {&start_, 1},
                         {.temperature = 0.0}, written);
    }
    return written.ids;
  }

 private:
  std::unique_ptr<models::SequenceToSequence> model_;
  std::int32_t start_;
};

std::unique_ptr<Worker> worker_of(const std::string& path, WeightType weights) {
  const models::ModelFolder folder(path);
  folder.check_runs();
  const auto kind = models::family_kind(folder.config());
  if (kind == models::FamilyKind::encoder) return std::make_unique<Encoding>(folder, weights);
  if (kind == models::FamilyKind::translator) return std::make_unique<Translating>(folder, weights);
  return std::make_unique<Continuing>(folder, weights);
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Described {
  Shares shares;
  double bytes = 0.0;  // of products
};

Described describe(int threads, const std::function<void()>& body) {
  Profile profile(0);
  body();
  profile.stop();
  Described result{.shares = shares_of(profile, threads)};
  for (const ProfileTotal& total : profile.totals()) {
    if (total.label->part == ProfilePart::products) result.bytes += total.work.bytes;
  }
  return result;
}

ModelRow measured(const ModelBench& bench, Worker& worker, WeightType weights, int threads) {
  nn::use_threads(threads);
  std::vector<Ids> sequences;
  for (const std::int64_t length : lengths_of(bench))
    sequences.push_back(sequence_of(std::ssize(sequences), length));
  const Ids prompt = sequence_of(bench.batch, bench.prompt);
  ModelRow row{.weights = weights, .threads = threads, .ids = {}, .reading_parts = {}, .writing_parts = {}};
  row.ids = worker.write(prompt, 1 + bench.tokens);
  const bool writes = !row.ids.empty();
  worker.read(sequences);
  const Described reading = describe(threads, [&] { worker.read(sequences); });
  row.reading_parts = reading.shares.parts;
  if (writes) {
    const Described all = describe(threads, [&] { worker.write(prompt, 1 + bench.tokens); }),
                    first = describe(threads, [&] { worker.write(prompt, 1); });
    row.writing_bytes = (all.bytes - first.bytes) / static_cast<double>(bench.tokens);
    row.writing_parts = all.shares.parts;
  }
  Peaks peaks(products_of(weights), threads);
  std::vector<double> read, written, rates;
  for (std::int64_t round = 0; round < bench.rounds; ++round) {
    peaks.measure();
    read.push_back(seconds_of([&] { worker.read(sequences); }));
    if (!writes) continue;
    rates.push_back(
        measure(Probe::read, {.threads = threads, .seconds = 0.2, .footprint = std::int64_t{512} << 20}));
    worker.write(prompt, 1);  // the probe has emptied the caches
    const double first = seconds_of([&] { worker.write(prompt, 1); });
    const double all = seconds_of([&] { worker.write(prompt, 1 + bench.tokens); });
    written.push_back((all - first) / static_cast<double>(bench.tokens));
  }
  row.reading = median(read);
  row.peak = peaks.products();
  row.reading_least = peaks.least_seconds(reading.shares);
  if (writes) row.writing = std::max(median(written), 0.0), row.read_rate = median(rates);
  return row;
}

}  // namespace

std::vector<std::int64_t> lengths_of(const ModelBench& bench) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(bench.batch), bench.length);
  if (bench.shortest == 0 || bench.batch < 2) return lengths;
  if (bench.shortest > bench.length)
    throw InvalidArgument("fovea bench model", "--shortest",
                          "at most --length, " + std::to_string(bench.length),
                          std::to_string(bench.shortest));
  for (std::int64_t s = 0; s < bench.batch; ++s)
    lengths[static_cast<std::size_t>(s)] -= s * (bench.length - bench.shortest) / (bench.batch - 1);
  return lengths;
}

std::int32_t bench_id(std::int64_t sequence, std::int64_t n) {
  return static_cast<std::int32_t>(4 + (sequence * 7919 + n * 104729) % 996);
}

void measure_model(const ModelBench& bench, const std::function<void(const ModelRow&)>& tell) {
  for (const WeightType weights : bench.weights) {
    const std::unique_ptr<Worker> worker = worker_of(bench.folder, weights);
    for (const int threads : bench.threads) tell(measured(bench, *worker, weights, threads));
  }
  nn::use_threads(0);
}

}  // namespace fovea::bench
