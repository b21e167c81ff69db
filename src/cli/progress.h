// Progress output: a bar that redraws itself on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "fovea/train/trainer.h"

namespace fovea::cli {

class TerminalProgress final : public train::Listener {
 public:
  /// What is shown of a validation besides its perplexity: a language model has no BLEU.
  enum class Shows : std::uint8_t { bleu, perplexity_alone };
  explicit TerminalProgress(std::string label, Shows shows = Shows::bleu);
  ~TerminalProgress() override;
  void on_step(const train::Progress& progress) override;
  void on_validation(const train::Validation& validation) override;
  void on_message(const std::string& message) override;

 private:
  void clear();
  std::string label_;
  Shows shows_;
  bool terminal_ = false, drawn_ = false;
  double last_ = -1e9;
};

/// How far a long command is, on standard error: a line that redraws itself on a terminal, and a plain line
/// each 30 seconds elsewhere. A command that ends within a second shows nothing.
class CountProgress {
 public:
  /// `unit` is the plural of what is counted, such as "lines".
  CountProgress(std::string command, std::string unit);
  ~CountProgress();
  CountProgress(const CountProgress&) = delete;
  CountProgress& operator=(const CountProgress&) = delete;
  /// `total` is the number of all, where it is known.
  void show(std::int64_t done, std::optional<std::int64_t> total);
  /// Clears the line, so that something else can be printed.
  void clear();

 private:
  std::string command_, unit_;
  bool terminal_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point begin_;
  double last_ = 0.0;
};

}  // namespace fovea::cli
