// Here are the commands of `fovea`: they read options, call the libraries and print. No arithmetic and no
// algorithm is here; those are in the libraries that a command calls. Open this header first, then main.cpp.
//
// Each command registers itself: its options, its help, and a callback.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fovea::cli {

void register_train(CLI::App& app);
void register_translate(CLI::App& app);
void register_shortlist(CLI::App& app);
void register_summarize(CLI::App& app);
void register_generate(CLI::App& app);
void register_embed(CLI::App& app);
void register_classify(CLI::App& app);
void register_tag(CLI::App& app);
void register_answer(CLI::App& app);
void register_fill(CLI::App& app);
void register_rank(CLI::App& app);
void register_convert(CLI::App& app);
void register_show(CLI::App& app);
void register_tokenize(CLI::App& app);
void register_score(CLI::App& app);
void register_corpus(CLI::App& app);
void register_inspect(CLI::App& app);
void register_attend(CLI::App& app);
void register_bench(CLI::App& app);
void register_demo(CLI::App& app);

/// Accepts finite numbers only: nan and inf would pass any range check.
CLI::Validator finite();

/// --weights: the type of packed matrices, f32 or int8.
void add_weights_option(CLI::App& command, std::string& weights);

/// Whether two paths name the same file, however they are spelt.
bool same_file(const std::string& a, const std::string& b);

/// After this call, the first Ctrl-C or SIGTERM only sets stop_requested; a second one ends the process at
/// once. Call it before any thread is started.
void catch_signals();
bool stop_requested() noexcept;

/// Thrown by a command that a signal stopped in an orderly way. The message is printed and the exit code is
/// 128 + the signal, so that a script does not take the command for finished.
struct Stopped {
  std::string message;
};

}  // namespace fovea::cli
