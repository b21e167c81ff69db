#include "text/pipeline/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "text/pipeline/regex_syntax.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

constexpr std::size_t kMaxPatternBytes = std::size_t{1} << 16;
// PCRE2 counts backtracking steps, and one step can read the rest of the text. A search therefore tries the
// beginnings of one window only, and the processor time of all windows of a text is bounded. Steps of one
// window, beside 4 for each byte of the text; the patterns of published models need a few for each byte.
constexpr std::size_t kSteps = 100'000, kWindow = 1024;
// Time for a text, beside that for each of its bytes. The patterns of published models need 0.1 us for a
// byte.
constexpr auto kTime = std::chrono::milliseconds(20);
constexpr auto kTimeOfByte = std::chrono::microseconds(5);
constexpr std::uint32_t kHeapKib = 64 * 1024;
// Of compiled code. The patterns of published models need 4 bytes for each of theirs.
constexpr std::size_t kCodeBytes = 1024, kCodeGrowth = 16;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::chrono::nanoseconds processor_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// The time that is left for a text. Processor time costs a system call, so it is counted only once as much
// time has passed. A process that waits thus loses nothing.
class TimeLimit {
 public:
  explicit TimeLimit(std::size_t bytes)
      : limit_(kTime + kTimeOfByte * static_cast<std::int64_t>(bytes)), until_(Clock::now() + limit_) {}
  bool over() {
    if (Clock::now() < until_) return false;
    const std::chrono::nanoseconds now = processor_time();
    if (processor_until_.count() == 0) processor_until_ = now + limit_;
    return now >= processor_until_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds limit_;
  Clock::time_point until_;
  std::chrono::nanoseconds processor_until_{};  // 0: not counted yet
};

}  // namespace

struct Regex::Compiled {
  std::string pattern;
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> code;

  [[noreturn]] void refuse(std::string_view text, const std::string& problem) const {
    throw InvalidArgument("Regex", "pattern",
                          "a pattern that finds its matches in a text of " + std::to_string(text.size()) +
                              " bytes within the limits of steps, time and memory",
                          "'" + excerpt(pattern) + "': " + problem);
  }

  // Searches from `at`; returns whether there is a match.
  bool find(std::string_view text, std::size_t at, pcre2_match_data* data, pcre2_match_context* context,
            TimeLimit& time) const {
    while (true) {
      std::size_t end = std::min(at + kWindow, text.size());
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) ++end;
      const bool last = end == text.size();
      pcre2_set_offset_limit(context, last ? end : end - 1);
      if (find_in_window(text, at, data, context)) return true;
      if (last) return false;
      if (time.over()) refuse(text, "time limit exceeded");
      at = end;
    }
  }

  // The same for a match that begins at the context's limit or before it.
  bool find_in_window(std::string_view text, std::size_t at, pcre2_match_data* data,
                      pcre2_match_context* context) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data, context);
    // The compiled code has a stack of its own, which is small.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found =
          pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) refuse(text, message_of(found));
    return true;
  }
};

Regex::Regex(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    throw InvalidArgument("Regex", "pattern", "at most " + std::to_string(kMaxPatternBytes) + " bytes",
                          std::to_string(pattern.size()));
  compile(pattern, false);
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.compile(text, true);
  return regex;
}

void Regex::compile(std::string_view pattern, bool is_literal) {
  const std::string translated = is_literal ? std::string(pattern) : pcre2_pattern(pattern);
  // In Ruby's syntax ^ and $ are the ends of lines.
  const std::uint32_t options =
      PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT |
      (is_literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                     options, &error, &at, nullptr));
  if (!compiled->code)
    throw InvalidArgument("Regex", "pattern", "a regular expression",
                          "'" + excerpt(pattern) + "': " + message_of(error));
  // A repeated group is compiled as often as it is repeated. A file of many such patterns would cost
  // gigabytes.
  std::size_t size = 0;
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_SIZE, &size);
  if (size > kCodeBytes + kCodeGrowth * translated.size())
    throw InvalidArgument("Regex", "pattern", "one without large repetitions of groups",
                          "'" + excerpt(pattern) + "', which compiles to " + std::to_string(size) + " bytes");
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);  // without it matching is slower
  compiled_ = std::move(compiled);
}

std::vector<Part> Regex::parts(std::string_view text) const {
  const MatchData data(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) throw std::bad_alloc();
  const std::size_t steps = kSteps + 4 * text.size();
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(std::min<std::size_t>(steps, 0xFFFFFFFF)));
  pcre2_set_heap_limit(context.get(), kHeapKib);

  std::vector<Part> parts;
  TimeLimit time(text.size());
  std::size_t between = 0, at = 0;
  while (at <= text.size() && compiled_->find(text, at, data.get(), context.get(), time)) {
    if (time.over()) compiled_->refuse(text, "time limit exceeded");
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = found[0], end = found[1];
    if (begin > between) parts.push_back({between, begin, false});
    // An empty match splits the text, and the next one is searched behind the next character.
    parts.push_back({begin, end, true});
    between = end;
    at = end > begin         ? end
         : end < text.size() ? end + static_cast<std::size_t>(decode_utf8(text, end).bytes)
                             : text.size() + 1;
  }
  if (between < text.size()) parts.push_back({between, text.size(), false});
  return parts;
}

}  // namespace fovea::text::pipeline
