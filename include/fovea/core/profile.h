// Where the time of a program goes: named pieces of work, recorded while a profile runs.
//
//   Profile profile;                             // records from here on
//   trainer.train(...);
//   profile.stop();
//   profile.write_chrome_trace("profile.json");  // for chrome://tracing or ui.perfetto.dev
//   for (const ProfileTotal& total : profile.totals()) …
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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
  data,
  waiting,
  other
};
const char* to_string(ProfilePart part) noexcept;

/// What the multiply-adds of a piece of work multiply, because a machine has a rate for each. `int8` has no
/// rate in ProfileLimits.
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

/// All spans of one label together. Times are in seconds and summed over threads.
struct ProfileTotal {
  const ProfileLabel* label = nullptr;
  bool backward = false;
  std::int64_t count = 0;
  double seconds = 0.0;  ///< from beginning to end
  double own = 0.0;      ///< without the spans inside; these add up to the time of the outermost spans
  ProfileWork work;
};

/// What a machine can do at most, for shares of the limit. 0: not measured.
struct ProfileLimits {
  double multiply_adds_per_second = 0.0;       ///< of f32
  double bf16_multiply_adds_per_second = 0.0;  ///< of bf16
  double bytes_per_second = 0.0;
};

/// Records the spans of all threads from its construction to `stop`. At most one profile records at a time:
/// the constructor throws InvalidArgument while another one does. A span takes some 50 ns while a profile
/// records, and one load of an atomic pointer while none does.
class Profile {
 public:
  /// Events are kept for the trace up to `most_events` a thread, 48 bytes each. The totals count all.
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
  /// Writes the events as JSON in the "trace event" form of Chrome, with multiply-adds and bytes where known.
  /// Where `limits` has a rate, an event also has its share of the limit: the time that the work takes at
  /// this rate, divided by the time that it took. Throws FileError.
  void write_chrome_trace(const std::string& path, const ProfileLimits& limits = {}) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// A piece of work of this thread, from construction to destruction. Spans nest.
class ProfileSpan {
 public:
  explicit ProfileSpan(const ProfileLabel& label, const ProfileWork& work = {},
                       bool backward = false) noexcept;
  ~ProfileSpan();
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;
  /// The label of this thread's innermost span; null if none is open or no profile records.
  static const ProfileLabel* current() noexcept;

  struct Thread;

 private:
  Thread* thread_ = nullptr;  // null: nothing is recorded
  const ProfileLabel* label_ = nullptr;
  ProfileSpan* outer_ = nullptr;
  ProfileWork work_;
  std::int64_t begin_ = 0, inner_ = 0;  // nanoseconds
  bool backward_ = false;
};

}  // namespace fovea
