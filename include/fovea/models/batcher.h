// Many texts generated together. Requests come and go while a language model writes: each step reads the next
// token of every text being written, beside pieces of new prompts. Every answer has the bits of `generate` on
// the same request alone.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/models/generate_until.h"
#include "fovea/models/language_model.h"

namespace fovea::models {

struct BatcherOptions {
  /// Of the keys and values of all requests. A request waits until its whole length fits beside those that
  /// run, so none of them is ever taken back.
  std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max();
  /// Of prompts that were read, kept for later prompts that begin in the same way (KvCacheOptions).
  std::int64_t prefix_bytes = 0;
  /// Tokens of one step at most. Texts that are being written come first, a token each; what is left is for
  /// pieces of prompts, 64 tokens each. At least 64.
  std::int64_t step_tokens = 512;
};

/// Why an answer ended.
enum class Finish : std::uint8_t {
  length,     ///< SampleOptions::length tokens are written
  stop,       ///< the last token is one of Request::stop, or Request::ends said so
  cancelled,  ///< by Batcher::cancel
  failed,     ///< by an exception: Answer::error
};

struct Answer {
  std::uint64_t request = 0;
  Finish finish = Finish::length;
  Generated generated;  ///< what is written up to the end, without cache_bytes
  std::exception_ptr error = {};
};

struct Request {
  std::vector<std::int32_t> prompt;
  SampleOptions sample = {};            ///< Reuse::on
  std::vector<std::int32_t> stop = {};  ///< ids that end the text; the one that did is its last
  /// Called like `token`, with all that is written: true ends the text.
  EndsText ends = {};
  /// Prompts with equal salts share what they have in common. One number a user keeps users apart.
  std::uint64_t salt = 0;
  /// Called for each token, in the thread that calls `step`. The text fails if it throws, and the others go
  /// on.
  std::function<void(std::int32_t id, double log_probability)> token = {};
  /// Called once, at the end, in the thread that calls `step`. It may submit and cancel. It must not throw.
  std::function<void(const Answer&)> done = {};
};

/// `submit`, `cancel` and `waiting` may be called by any thread at any time; `step` and `run` by one thread.
class Batcher {
 public:
  /// The model must outlive the batcher. Throws InvalidArgument for options outside their ranges.
  explicit Batcher(LanguageModel& model, const BatcherOptions& options = {});
  /// Requests that have not ended are dropped, without an answer.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// Queues a request, and returns its number: 1, 2, ... Throws what `generate` throws, and InvalidArgument
  /// if the text would be longer than the model's longest_kept(). Throws CacheFull if limit_bytes could not
  /// hold the text even alone.
  std::uint64_t submit(Request request);
  /// Ends a request before the next step; its answer has what is written. False if it has ended already, or
  /// never was.
  bool cancel(std::uint64_t request);

  /// Reads one batch. Returns whether requests are left. If the model throws (bad_alloc, Cancelled), the
  /// requests that it threw for have not moved, and `step` may be called again.
  bool step();
  /// Steps until no request is left.
  void run();

  std::int64_t waiting() const;  ///< requests that have not ended
  struct Stats {
    std::int64_t steps = 0;
    std::int64_t read = 0, written = 0;  ///< tokens
    std::int64_t shared = 0;             ///< tokens of prompts that were found in the cache, and not read
    std::int64_t most_bytes = 0;         ///< the most bytes of keys and values behind a step
    std::int64_t most_texts = 0;         ///< the most texts that ran at once
  };
  Stats stats() const;
  /// Of the keys and values now.
  CacheBytes bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea::models
