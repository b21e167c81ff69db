// Where the time of a program goes: named pieces of work, recorded while a profile runs.
//
//   Profile profile;                             // records from here on
//   trainer.train(...);
//   profile.stop();
//   profile.write_chrome_trace("profile.json");  // for chrome://tracing or ui.perfetto.dev
//   for (const auto& [part, seconds] : profile.parts(threads)) …
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fovea {

/// What kind of work a span counts as.
enum class ProfilePart : std::uint8_t {
  products,
  attention,
  recurrence,
  norms,
  elementwise,
  embeddings,
  losses,
  optimizer,
  search,  ///< choosing tokens: probabilities, the best of them, draws, hypotheses of a beam
  data,    ///< texts, tokens, batches, files of models
  waiting,
  other
};
const char* to_string(ProfilePart part) noexcept;

/// What the multiply-adds of a piece of work multiply, because a machine has a rate for each.
enum class ProfileOperands : std::uint8_t { f32, bf16, int8 };

/// The name and the kind of a piece of work. A constant with static storage, because spans keep its address.
struct ProfileLabel {
  const char* name;
  ProfilePart part;
  ProfileOperands operands = ProfileOperands::f32;
};

/// The work of a span, from which its share of a machine's limit follows. 0: not known.
struct ProfileWork {
  double multiply_adds = 0.0, bytes = 0.0;
};

/// All spans of one label together. Times are in seconds and summed over threads: what a pool's threads do
/// for a call counts for the label of the span that the calling thread is inside.
struct ProfileTotal {
  const ProfileLabel* label = nullptr;
  bool backward = false;
  std::int64_t count = 0;  ///< without the shares of a pool's threads
  double seconds = 0.0;    ///< from beginning to end
  double own = 0.0;        ///< without the spans inside; these add up to the time of the outermost spans
  ProfileWork work;
};

/// What so many threads of a machine can do at most, for shares of the limit. 0 or none: not measured.
struct ProfileLimits {
  double multiply_adds_per_second = 0.0;       ///< of f32
  double bf16_multiply_adds_per_second = 0.0;  ///< of bf16
  double int8_multiply_adds_per_second = 0.0;  ///< of int8
  struct Reading {
    double bytes = 0.0, bytes_per_second = 0.0;
  };
  /// Rates of moving so many bytes again and again, from few bytes to many: caches are faster than memory.
  /// Work moves its bytes at the rate of the largest entry that is not larger than they are.
  std::vector<Reading> reading;
};
/// The limits of a number of threads. Asked once for each number that a profile's spans ran on.
using ProfileLimitsOf = std::function<ProfileLimits(int threads)>;

/// Records the spans of all threads from its construction to `stop`. At most one profile records at a time:
/// the constructor throws InvalidArgument while another one does. A span takes some 50 ns while a profile
/// records, and one load of an atomic pointer while none does.
class Profile {
 public:
  /// Events are kept for the trace up to `most_events` a thread, 64 bytes each. The totals count all.
  explicit Profile(std::int64_t most_events = 1 << 18);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording. No other thread may be inside a span of this profile. The functions below must be
  /// called after it.
  void stop() noexcept;
  /// From the largest `own` to the smallest.
  std::vector<ProfileTotal> totals() const;
  /// From construction to `stop`.
  double seconds() const noexcept;
  /// Seconds of each part, the largest first, of `threads` threads: the one that made the profile, and the
  /// others of its pool. They add up to threads · seconds(). `waiting` has all time in which a thread of the
  /// pool had no work, and `other` the time of the first thread outside of spans.
  std::vector<std::pair<ProfilePart, double>> parts(int threads) const;
  /// How many events the trace lacks, because a thread had more than the constructor allowed.
  std::int64_t dropped() const noexcept;
  /// Writes the events as JSON in the "trace event" form of Chrome, with multiply-adds and bytes where known,
  /// and `dropped` among the metadata. With `limits` an event also has its share of the limit. That is the
  /// least time of its work, and of the work inside it, divided by the time that it took. The least time is
  /// that of the multiply-adds or of the bytes, whichever is longer, on the threads that the event ran on. A
  /// pool's thread has the share of the call that it works for, unless it had spans with work of its own. An
  /// event whose work needs a rate that is 0 has none. Throws FileError.
  void write_chrome_trace(const std::string& path, const ProfileLimitsOf& limits = {}) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class ProfileSpan;

/// Work of the calling thread that `threads` threads of a pool share. Made before they begin; each then opens
/// a ProfileSpan for it.
class ProfileCall {
 public:
  ProfileCall() = default;  ///< of nothing: a span of it records nothing
  explicit ProfileCall(int threads) noexcept;

 private:
  friend class ProfileSpan;
  const ProfileLabel* label_ = nullptr;  // null: nothing is recorded
  std::uint64_t number_ = 0;             // of the calling span; 0: there is none
  bool backward_ = false;
};

/// A piece of work of this thread, from construction to destruction. Spans nest.
class ProfileSpan {
 public:
  explicit ProfileSpan(const ProfileLabel& label, const ProfileWork& work = {},
                       bool backward = false) noexcept;
  /// The share of a pool's thread in a call. The time since the thread's last share counts as waiting.
  explicit ProfileSpan(const ProfileCall& call) noexcept;
  ~ProfileSpan();
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

  /// The label and the work of this thread's innermost span; null if none is open or no profile records.
  struct Now {
    const ProfileLabel* label = nullptr;
    ProfileWork work;
  };
  static Now current() noexcept;
  /// Adds to the work of this thread's innermost span, where what it takes is known only inside.
  static void add(const ProfileWork& work) noexcept;
  /// Whether a profile records. To spare the counting of work that only `add` needs.
  static bool recording() noexcept;

  struct Thread;

 private:
  friend class ProfileCall;
  void open(const ProfileLabel& label, bool backward) noexcept;

  Thread* thread_ = nullptr;  // null: nothing is recorded
  const ProfileLabel* label_ = nullptr;
  ProfileSpan* outer_ = nullptr;
  ProfileWork work_;
  std::int64_t begin_ = 0, inner_ = 0;       // nanoseconds
  std::uint64_t number_ = 0, share_of_ = 0;  // as ProfileEvent has them
  int threads_ = 1;
  bool backward_ = false, is_share_ = false;
};

}  // namespace fovea
