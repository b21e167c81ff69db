// Progress output: a bar that redraws itself on a terminal, plain lines elsewhere.
#pragma once

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

}  // namespace fovea::cli
