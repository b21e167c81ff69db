// What a profile has recorded, for its totals and its trace.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fovea/core/profile.h"

namespace fovea {

struct ProfileEvent {
  const ProfileLabel* label = nullptr;
  std::int64_t begin = 0, end = 0;  // nanoseconds of the steady clock
  ProfileWork work;
  std::uint64_t number = 0;    // of a span whose work a pool shared; else 0
  std::uint64_t share_of = 0;  // the number of the span that a pool's thread worked for; else 0
  int threads = 1;             // that worked at most at once
  bool backward = false;
};

// What one thread has recorded.
struct ProfileSpan::Thread {
  std::vector<ProfileEvent> events;  // in the order of their ends
  std::map<std::pair<const ProfileLabel*, bool>, ProfileTotal> totals;
  ProfileSpan* innermost = nullptr;
  std::int64_t most_events = 0, dropped = 0;
  std::int64_t last_end = 0;  // of a pool's thread: when it had done its last share
  bool is_of_pool = false;

  void keep(const ProfileEvent& event, std::int64_t own, bool counts) noexcept;
};

struct Profile::Impl {
  Impl();
  const std::uint64_t number;
  std::int64_t most_events = 0, begin, end = 0;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<ProfileSpan::Thread>> threads;

  // The record of the calling thread, made at its first span. Null if there is no memory for it.
  ProfileSpan::Thread* mine() noexcept;
};

}  // namespace fovea
