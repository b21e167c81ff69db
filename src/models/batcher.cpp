#include "fovea/models/batcher.h"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "models/sampling.h"

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

struct Batcher::Impl {
  Impl(LanguageModel& of, const BatcherOptions& given)
      : model(of),
        options(given),
        cache({.layers = of.cache_layers(Paged{prompt_piece}),
               .limit_bytes = given.limit_bytes,
               .prefix_bytes = given.prefix_bytes}),
        shares_pages(std::ranges::all_of(cache.options().layers, [](const CacheLayer& layer) {
          return layer.store == CacheStore(Paged{prompt_piece});
        })) {}

  // A request, and its sequence once it runs.
  struct Text {
    std::uint64_t number = 0;
    Request request;
    std::int64_t bytes = 0;  // that it takes at most
    Sequence sequence = {};
    Generated written = {};
    bool waits = false;  // in the last step, for another text that read the same piece

    std::int64_t read(const KvCache& cache) const { return sequence ? cache.length(sequence) : 0; }
    // What is to be read next: a piece of the prompt, or the last token.
    std::span<const std::int32_t> next(const KvCache& cache) const {
      if (!written.ids.empty()) return std::span(written.ids).last(1);
      const std::int64_t length = read(cache);
      return next_piece(std::span(request.prompt).subspan(static_cast<std::size_t>(length)), length);
    }
  };

  // One row of a step: what a text reads.
  struct Reading {
    Text* text = nullptr;
    std::int64_t rows = 0;
    bool writes = false;            // whether a token follows
    std::exception_ptr error = {};  // why that token could not be chosen
  };

  // Readings of a step that one thread computes.
  struct Share {
    std::span<Reading> readings;
    std::exception_ptr error = {};  // why they were not read
  };

  void take_arrivals();
  void admit();
  void look_up(Text& text);
  std::vector<Reading> choose();
  std::vector<Share> share_out(std::span<Reading> readings);
  void write(const Share& share, const Tensor& rows);
  void read(const Share& share);
  void tell(const Reading& reading);
  void end(Text& text, Finish finish, std::exception_ptr error = {});
  void drop_ended();
  void count(std::span<const Share> shares);

  LanguageModel& model;
  const BatcherOptions options;
  // Of the thread that steps.
  KvCache cache;
  bool shares_pages = false;  // whether start(ids) of this cache can find anything
  std::deque<Text> queue;     // not yet running, in the order of arrival
  std::list<Text> running;    // in the order of arrival
  std::int64_t promised = 0;  // bytes of all that run
  // Of all threads.
  mutable std::mutex mutex;
  std::deque<Text> arrivals;
  std::set<std::uint64_t> open, cancelled;
  std::uint64_t last_number = 0;
  Stats stats;
};

Batcher::Batcher(LanguageModel& model, const BatcherOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(model, options);
}
Batcher::~Batcher() = default;

std::uint64_t Batcher::submit(Request request) {
  check_generation(impl_->model, request.prompt, request.sample);
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("Batcher::submit", argument, std::move(expected), std::move(got));
  };
  if (request.sample.reuse == Reuse::off) refuse("request.sample.reuse", "on, as texts share a cache", "off");
  const std::int64_t prompt = std::ssize(request.prompt), longest = impl_->model.longest();
  // The last token is written and not read. `longest` may be the largest number, so nothing is added to a
  // length.
  const std::int64_t behind = std::max<std::int64_t>(request.sample.length - 1, 0);
  if (request.sample.length > longest || prompt > longest || behind > longest - prompt)
    refuse("request",
           "a prompt of at most " + std::to_string(longest) +
               " tokens, the model's, and together with the length at most one more",
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

void Batcher::Impl::end(Text& text, Finish finish, std::exception_ptr error) {
  text.sequence = Sequence();
  {
    const std::lock_guard lock(mutex);
    open.erase(text.number);
    cancelled.erase(text.number);
  }
  if (text.request.done)
    text.request.done(
        {.request = text.number, .finish = finish, .generated = std::move(text.written), .error = error});
}

// Takes over what was submitted, and ends what was cancelled.
void Batcher::Impl::take_arrivals() {
  std::set<std::uint64_t> ending;
  {
    const std::lock_guard lock(mutex);
    std::move(arrivals.begin(), arrivals.end(), std::back_inserter(queue));
    arrivals.clear();
    ending = cancelled;
  }
  const auto move_cancelled = [&](auto& texts, const auto& leave) {
    for (auto at = texts.begin(); at != texts.end();) {
      if (!ending.contains(at->number)) {
        ++at;
        continue;
      }
      Text text = std::move(*at);
      at = texts.erase(at);
      leave(text);
      end(text, Finish::cancelled);
    }
  };
  if (ending.empty()) return;
  move_cancelled(queue, [](const Text&) {});
  move_cancelled(running, [&](const Text& text) { promised -= text.bytes; });
}

// Starts requests in the order of their arrival, as long as all that run keep room to their ends.
void Batcher::Impl::admit() {
  while (!queue.empty() && std::ssize(running) < options.step_tokens) {
    Text& first = queue.front();
    if (first.request.sample.length == 0) {
      Text text = std::move(first);
      queue.pop_front();
      end(text, Finish::length);
      continue;
    }
    if (first.bytes > options.limit_bytes - promised) return;
    first.sequence = cache.start();
    look_up(first);
    promised += first.bytes;
    running.push_back(std::move(first));
    queue.pop_front();
  }
}

// Takes the pages that others have read of the same prompt, where those are more than the text has. A page
// holds one piece, and only rows of prompts are known. So what is found has the bits that this text would
// compute.
void Batcher::Impl::look_up(Text& text) {
  const std::int64_t read = text.read(cache);
  if (cache.find_prefix(text.request.prompt, text.request.salt) <= read) return;
  text.sequence = cache.start(text.request.prompt, text.request.salt);
  const std::lock_guard lock(mutex);
  stats.shared += cache.length(text.sequence) - read;
}

// Each text reads once a step. A prompt whose next piece another text reads in this step waits, and takes
// that piece's page in the next step.
std::vector<Batcher::Impl::Reading> Batcher::Impl::choose() {
  std::vector<Reading> readings;
  std::int64_t left = options.step_tokens;
  // What this step reads of prompts: all ids up to the end of a piece, by that end and by the salt.
  std::multimap<std::pair<std::int64_t, std::uint64_t>, std::span<const std::int32_t>> pieces;
  const auto another_reads = [&](const Text& text, std::int64_t end) {
    const auto ids = std::span(text.request.prompt).first(static_cast<std::size_t>(end));
    const auto [first, last] = pieces.equal_range({end, text.request.salt});
    const bool found =
        std::any_of(first, last, [&](const auto& piece) { return std::ranges::equal(piece.second, ids); });
    if (!found) pieces.insert({{end, text.request.salt}, ids});
    return found;
  };
  for (const bool prompts : {false, true}) {
    for (Text& text : running) {
      if (text.written.ids.empty() != prompts) continue;
      if (std::exchange(text.waits, false)) look_up(text);
      const std::int64_t rows = std::ssize(text.next(cache));
      if (rows > left) break;  // a piece is never cut: its length decides bits
      // The last piece of a prompt is not found by start(ids), because its last row is to be computed.
      const std::int64_t end = text.read(cache) + rows;
      text.waits = prompts && shares_pages && end % prompt_piece == 0 &&
                   end < std::ssize(text.request.prompt) && another_reads(text, end);
      if (text.waits) continue;
      left -= rows;
      readings.push_back({&text, rows, !prompts || end == std::ssize(text.request.prompt)});
    }
  }
  return readings;
}

// Passes on the token that was written, and ends the text where that was its last.
void Batcher::Impl::tell(const Reading& reading) {
  if (!reading.writes) return;
  Text& text = *reading.text;
  bool ends = false;
  try {
    if (reading.error) std::rethrow_exception(reading.error);
    if (text.request.token)
      text.request.token(text.written.ids.back(), text.written.log_probabilities.back());
    ends = text.request.ends && text.request.ends(text.written.ids);
  } catch (...) {
    return end(text, Finish::failed, std::current_exception());
  }
  const auto& stop = text.request.stop;
  if (ends || std::find(stop.begin(), stop.end(), text.written.ids.back()) != stop.end())
    return end(text, Finish::stop);
  if (std::ssize(text.written.ids) == text.request.sample.length) end(text, Finish::length);
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
  const std::int64_t writing = std::ranges::count_if(share.readings, &Reading::writes), dim = rows.size(2);
  if (writing == 0) return;
  Tensor last(DType::f32, {writing, dim});
  std::int64_t end_row = 0, at = 0;
  for (const Reading& reading : share.readings) {
    end_row += reading.rows;
    if (reading.writes)
      std::copy_n(rows.data<float>() + (end_row - 1) * dim, dim, last.data<float>() + at++ * dim);
  }
  const Tensor logits = model.logits(last);
  const std::int64_t classes = logits.size(1);
  at = 0;
  for (Reading& reading : share.readings) {
    if (!reading.writes) continue;
    Text& text = *reading.text;
    try {
      write_next({logits.data<float>() + at++ * classes, static_cast<std::size_t>(classes)},
                 text.request.prompt, text.request.sample, text.written);
    } catch (const Cancelled&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {  // such as logits that are NaN: this text alone fails
      reading.error = std::current_exception();
    }
  }
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

void Batcher::Impl::drop_ended() {
  for (auto text = running.begin(); text != running.end();) {
    const bool ended = !text->sequence;
    if (ended) promised -= text->bytes;
    text = ended ? running.erase(text) : std::next(text);
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
