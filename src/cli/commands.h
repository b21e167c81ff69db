// Each command registers itself: its options, its help, and a callback. No arithmetic here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fovea::cli {

void register_train(CLI::App& app);
void register_translate(CLI::App& app);
void register_score(CLI::App& app);
void register_corpus(CLI::App& app);
void register_inspect(CLI::App& app);
void register_attend(CLI::App& app);
void register_bench(CLI::App& app);
void register_demo(CLI::App& app);

/// A number, and not the nan or inf that would pass any range.
CLI::Validator finite();

/// Whether two paths name one file, however they are spelt.
bool same_file(const std::string& a, const std::string& b);

/// From now on Ctrl-C and SIGTERM only set stop_requested; a second one ends the process at once. To be
/// called before anything starts a thread.
void catch_signals();
bool stop_requested() noexcept;

/// A command that did what it was asked by a signal: the message goes out and the exit code is 128 + the
/// signal, so that a script does not go on as if it had finished.
struct Stopped {
  std::string message;
};

}  // namespace fovea::cli
