#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fovea::cli {
namespace {

std::string clock_of(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

TerminalProgress::TerminalProgress(std::string label, Shows shows)
    : label_(std::move(label)), shows_(shows), terminal_(isatty(STDERR_FILENO) == 1) {}
TerminalProgress::~TerminalProgress() {
  clear();
}

void TerminalProgress::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

void TerminalProgress::on_step(const train::Progress& p) {
  const double interval = terminal_ ? 0.2 : 30.0;
  if (p.seconds - last_ < interval) return;
  last_ = p.seconds;
  const std::string left = p.seconds_left ? ", " + clock_of(*p.seconds_left) + " left" : "";
  const std::string text =
      fmt::format("{} epoch {} batch {}/{} update {}, loss {:.3f}, {:.0f} tokens/s, {}{}", label_, p.epoch,
                  p.batch, p.batches, p.update, p.loss, p.tokens_per_second, clock_of(p.seconds), left);
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  constexpr int width = 20;
  const auto done = static_cast<int>(width * p.batch / std::max<std::int64_t>(p.batches, 1));
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < done ? "█" : "░";
  fmt::print(stderr, "\r\033[K{} {}", bar, text);
  std::fflush(stderr);
  drawn_ = true;
}

CountProgress::CountProgress(std::string command, std::string unit)
    : command_(std::move(command)),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()) {}

CountProgress::~CountProgress() {
  clear();
}

void CountProgress::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

void CountProgress::show(std::int64_t done, std::optional<std::int64_t> total) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double interval = terminal_ ? (last_ > 0.0 ? 0.2 : 1.0) : 30.0;
  if (seconds - last_ < interval) return;
  last_ = seconds;
  const std::string of_all = total ? fmt::format(" of {}", *total) : std::string();
  std::string text = fmt::format("{} {}{} {}, {}", command_, done, of_all, unit_, clock_of(seconds));
  if (done > 0 && total)
    text += fmt::format(", {} left", clock_of(seconds / static_cast<double>(done) *
                                              static_cast<double>(std::max<std::int64_t>(*total - done, 0))));
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  drawn_ = true;
}

void TerminalProgress::on_validation(const train::Validation& v) {
  clear();
  const std::string bleu = shows_ == Shows::bleu ? fmt::format(", BLEU {:.2f}", v.bleu) : std::string();
  fmt::print(stderr,
             "{} update {} ({}): train loss {:.3f}, valid cross-entropy {:.3f}, perplexity {:.2f}{}{}\n",
             label_, v.update, clock_of(v.seconds), v.train_loss, v.cross_entropy, v.perplexity, bleu,
             v.improved ? " *" : "");
}

void TerminalProgress::on_message(const std::string& message) {
  clear();
  fmt::print(stderr, "{} {}\n", label_, message);
}

}  // namespace fovea::cli
