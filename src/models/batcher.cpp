#include "fovea/models/batcher.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "models/batcher_impl.h"
#include "models/rows.h"

namespace fovea::models {
namespace {

void check(const BatcherOptions& options) {
  const auto refuse = [](const char* option, const char* expected, std::int64_t got) {
    throw InvalidArgument("Batcher", std::string("options.") + option, expected, std::to_string(got));
  };
  if (options.limit_bytes < 0) refuse("limit_bytes", "0 or more", options.limit_bytes);
  if (options.prefix_bytes < 0) refuse("prefix_bytes", "0 or more", options.prefix_bytes);
  if (options.step_tokens < prompt_piece)
    refuse("step_tokens", "at least 64, the length of a piece", options.step_tokens);
}

}  // namespace

Batcher::Batcher(LanguageModel& model, const BatcherOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(model, options);
}
Batcher::~Batcher() = default;

std::uint64_t Batcher::submit(Request request) {
  check_generation({.function = "Batcher::submit", .prompt = "request.prompt", .options = "request.sample."},
                   impl_->model, request.prompt, request.sample);
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("Batcher::submit", argument, std::move(expected), std::move(got));
  };
  if (request.sample.reuse == Reuse::off) refuse("request.sample.reuse", "on, as texts share a cache", "off");
  const std::int64_t prompt = std::ssize(request.prompt), longest = impl_->model.longest_kept();
  // The last token is written and not read. `longest` may be the largest number, so nothing is added to a
  // length.
  const std::int64_t behind = std::max<std::int64_t>(request.sample.length - 1, 0);
  if (request.sample.length > longest || prompt > longest || behind > longest - prompt)
    refuse("request",
           "a prompt of at most " + std::to_string(longest) +
               " tokens, and together with the length at most one more, " + impl_->model.reads(Reuse::on),
           std::to_string(prompt) + " and " + std::to_string(request.sample.length));
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;  // of a cache
  if (prompt > most_rows || behind > most_rows - prompt)
    refuse("request", "a prompt and a length of 2^30 tokens together",
           std::to_string(prompt) + " and " + std::to_string(request.sample.length));
  const std::int64_t bytes = impl_->cache.bytes_for(prompt + behind);
  if (bytes > impl_->options.limit_bytes) throw CacheFull(bytes, 0, impl_->options.limit_bytes);
  const std::lock_guard lock(impl_->mutex);
  const std::uint64_t number = impl_->last_number + 1;
  impl_->arrivals.push_back({.number = number, .request = std::move(request), .bytes = bytes});
  impl_->open.insert(number);
  return impl_->last_number = number;
}

bool Batcher::cancel(std::uint64_t request) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->open.contains(request)) return false;
  impl_->cancelled.insert(request);
  return true;
}

std::int64_t Batcher::waiting() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->open.size());
}

Batcher::Stats Batcher::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

CacheBytes Batcher::bytes() const {
  return impl_->cache.bytes();
}

// Readings of a small model are shared out among the threads, since its products are too short to be split:
// 16 texts of the model of 0.46 million parameters gain 1.76 by a second thread, and gained 1.42 by products
// that were split. All weights are then read by every thread, which only caches make cheap. So products of
// larger models are split: shared out on two threads of a Zen 5 with 32 MB of cache, 4, 16 and 32 texts of
// the model of 66 million parameters reached 0.5 to 0.6, 0.7 and 0.9 of that speed, in bf16 and int8 0.5 to
// 0.8 (fovea bench generate --models small). A text has the same bits in any share.
std::vector<Batcher::Impl::Share> Batcher::Impl::share_out(std::span<Reading> readings) {
  constexpr std::int64_t most_parameters = 4'000'000, least_rows = 2;
  std::int64_t all = 0, count = 1, rows = 0;
  for (const Reading& reading : readings) all += reading.rows;
  if (model.parameters().count() <= most_parameters)
    count = std::clamp<std::int64_t>(all / least_rows, 1, default_executor().thread_count());
  std::vector<Share> shares;
  std::size_t begin = 0;
  for (std::size_t n = 0; n < readings.size(); ++n) {
    rows += readings[n].rows;
    if (n + 1 < readings.size() && rows * count < all * (std::ssize(shares) + 1)) continue;
    shares.push_back({.readings = readings.subspan(begin, n + 1 - begin)});
    begin = n + 1;
  }
  return shares;
}

// Chooses a token behind the last row of each reading that writes. Their logits come from one product with
// the table of the vocabulary.
void Batcher::Impl::write(const Share& share, const Tensor& rows) {
  std::vector<Reading*> writes;
  std::vector<std::int64_t> last;
  std::int64_t end_row = 0;
  for (Reading& reading : share.readings) {
    end_row += reading.rows;
    if (!reading.writes) continue;
    writes.push_back(&reading);
    last.push_back(end_row - 1);
  }
  const std::int64_t writing = std::ssize(writes);
  if (writing == 0) return;
  const Tensor logits = model.logits(gather_entries(rows.reshape({rows.size(1), rows.size(2)}), last));
  const std::int64_t classes = logits.size(1);
  // A draw from 50,257 words takes about a millisecond, and one from few words less than waking a thread.
  constexpr std::int64_t least_parallel = 1 << 15;
  Executor& executor = writing * classes < least_parallel ? serial_executor() : default_executor();
  executor.parallel_for(writing, [&](std::int64_t n, int) {
    Reading& reading = *writes[static_cast<std::size_t>(n)];
    Text& text = *reading.text;
    try {
      write_next({logits.data<float>() + n * classes, static_cast<std::size_t>(classes)}, text.request.prompt,
                 text.request.sample, text.written);
    } catch (const Cancelled&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {  // such as logits that are NaN: this text alone fails
      reading.error = std::current_exception();
    }
  });
}

// Reads the rows of all readings, and writes. If it throws, no text of the share has moved.
void Batcher::Impl::read(const Share& share) {
  std::vector<LanguageModel::Next> next;
  std::vector<std::size_t> written;
  for (const Reading& reading : share.readings) {
    next.push_back({.sequence = &reading.text->sequence,
                    .ids = reading.text->next(cache),
                    .known = reading.text->written.ids.empty()});
    written.push_back(reading.text->written.ids.size());
  }
  try {
    // Tokens are chosen before the rows are committed: either may run out of memory or be cancelled.
    model.extend(next, cache, [&](const nn::Var& rows) { write(share, rows.value()); });
  } catch (...) {
    for (std::size_t n = 0; n < written.size(); ++n) {
      Reading& reading = share.readings[n];
      reading.text->written.ids.resize(written[n]);
      reading.text->written.log_probabilities.resize(written[n]);
      reading.error = nullptr;
    }
    throw;
  }
}

void Batcher::Impl::count(std::span<const Share> shares) {
  const std::int64_t used = cache.bytes().used;
  const std::lock_guard lock(mutex);
  ++stats.steps;
  for (const Share& share : shares) {
    for (const Reading& reading : share.readings) {
      if (share.error) continue;
      stats.read += reading.rows;
      stats.written += reading.writes ? 1 : 0;
    }
  }
  stats.most_bytes = std::max(stats.most_bytes, used);
  stats.most_texts = std::max(stats.most_texts, std::ssize(running));
}

bool Batcher::step() {
  Impl& s = *impl_;
  static constexpr ProfileLabel choosing{"texts of a step", ProfilePart::data},
      telling{"tokens told", ProfilePart::data};
  std::vector<Impl::Reading> readings;
  std::vector<Impl::Share> shares;
  {
    const ProfileSpan span(choosing);
    s.take_arrivals();
    s.admit();
    readings = s.choose();
    if (readings.empty()) return waiting() > 0;
    shares = s.share_out(readings);
  }
  if (shares.size() == 1) {
    s.read(shares.front());
  } else {
    default_executor().parallel_for(std::ssize(shares), [&](std::int64_t n, int) {
      Impl::Share& share = shares[static_cast<std::size_t>(n)];
      try {
        s.read(share);
      } catch (...) {
        share.error = std::current_exception();
      }
    });
  }
  const ProfileSpan span(telling);
  s.count(shares);
  std::exception_ptr error;
  for (const Impl::Share& share : shares) {
    if (share.error) {
      error = share.error;
      continue;
    }
    for (const Impl::Reading& reading : share.readings) s.tell(reading);
  }
  s.drop_ended();
  if (error) std::rethrow_exception(error);
  return waiting() > 0;
}

void Batcher::run() {
  while (step()) {
  }
}

}  // namespace fovea::models
