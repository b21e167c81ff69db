#include "fovea/models/batches.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/core/memory.h"
#include "fovea/core/profile.h"

namespace fovea::models {

void for_batches(std::span<const std::int64_t> lengths, std::int64_t size,
                 const std::function<void(std::span<const std::size_t> texts)>& work) {
  if (size < 1) throw InvalidArgument("for_batches", "size", "at least 1", std::to_string(size));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > 0) order.push_back(i);
  }
  // Batches begin at the end, so that of texts of one length the first are answered first.
  std::ranges::reverse(order);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lengths[i]; });
  // A multiple of four batches of one size is even work for two and for four threads: of 182 texts in batches
  // of 32 one core of two had 96, and the other waited. The number of texts alone decides, not that of
  // threads, so that the bits of a text are the same for any number of them. Batches of
  // one or two texts would not pay for reading the weights once more.
  constexpr std::int64_t multiple = 4, fewest_texts = 4;
  const auto pieces = [](std::int64_t count, std::int64_t of) { return (count + of - 1) / of; };
  const std::int64_t texts = std::ssize(order);
  size = std::min(size, std::max<std::int64_t>(texts, 1));
  const std::int64_t batches =
      std::min(multiple * pieces(pieces(texts, size), multiple), pieces(texts, std::min(size, fewest_texts)));
  static constexpr ProfileLabel label{"batches of texts", ProfilePart::other};
  const ProfileSpan span(label);
  // A batch finds the memory of the one before it. The pages of caches went back to the system with each, and
  // new ones had to be zeroed (docs/decisions/0047).
  const KeepMemory keep;
  // Whoever is free takes the longest batch that is left. Executors give each thread a stretch of units, and
  // one of two threads then had the two longest of four batches.
  Executor& executor = default_executor();
  std::atomic<std::int64_t> left{batches};
  executor.parallel_for(std::min<std::int64_t>(batches, executor.thread_count()), [&](std::int64_t, int) {
    try {
      for (std::int64_t n; (n = --left) >= 0;) {
        const std::int64_t begin = n * texts / batches, end = (n + 1) * texts / batches;
        work(
            std::span(order).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
      }
    } catch (...) {
      left = 0;
      throw;
    }
  });
}

void for_batches_in_order(std::span<const std::int64_t> lengths, std::int64_t size,
                          const std::function<bool(std::span<const std::size_t> texts)>& work,
                          const std::function<void(std::size_t text)>& done) {
  std::mutex mutex;
  std::size_t next = 0;
  std::vector<bool> there;
  for (const std::int64_t length : lengths) there.push_back(length == 0);
  std::exception_ptr failure;
  const auto hand_on = [&] {
    try {
      while (!failure && next < there.size() && there[next]) done(next++);
    } catch (...) {
      failure = std::current_exception();
    }
  };
  const auto failed = [&] {
    const std::lock_guard lock(mutex);
    return failure != nullptr;
  };
  hand_on();
  for_batches(lengths, size, [&](std::span<const std::size_t> texts) {
    if (failed() || !work(texts)) return;
    const std::lock_guard lock(mutex);
    for (const std::size_t text : texts) there[text] = true;
    hand_on();
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fovea::models
