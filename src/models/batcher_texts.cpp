// Which texts a Batcher writes: they arrive, are admitted, read in each step, and end.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "models/batcher_impl.h"

namespace fovea::models {

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
    // Its pages belong to the texts of its salt alone, and so does what it finds.
    first.sequence = cache.start(first.request.prompt, first.request.salt);
    {
      const std::lock_guard lock(mutex);
      stats.shared += first.read(cache);
    }
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

void Batcher::Impl::drop_ended() {
  for (auto text = running.begin(); text != running.end();) {
    const bool ended = !text->sequence;
    if (ended) promised -= text->bytes;
    text = ended ? running.erase(text) : std::next(text);
  }
}

}  // namespace fovea::models
