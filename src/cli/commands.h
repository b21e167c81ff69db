// Here are the commands of `fovea`: they read options, call the libraries and print. No arithmetic and no
// algorithm is here; those are in the libraries that a command calls. Open this header first, then main.cpp.
//
// Each command registers itself: its options, its help, and a callback.
#pragma once

#include <string>

#include "cli/options.h"
#include "fovea/core/error.h"

namespace fovea::cli {

void register_train(Command app);
void register_translate(Command app);
void register_shortlist(Command app);
void register_summarize(Command app);
void register_generate(Command app);
void register_embed(Command app);
void register_classify(Command app);
void register_tag(Command app);
void register_answer(Command app);
void register_fill(Command app);
void register_rank(Command app);
void register_convert(Command app);
void register_show(Command app);
void register_tokenize(Command app);
void register_score(Command app);
void register_corpus(Command app);
void register_inspect(Command app);
void register_attend(Command app);
void register_bench(Command app);
void register_demo(Command app);

/// --weights: the type of packed matrices, f32 or int8.
void add_weights_option(Command command, std::string& weights);

/// --cpu-threads.
void add_threads_option(Command command, int& threads);

/// Whether two paths name the same file, however they are spelt.
bool same_file(const std::string& a, const std::string& b);

/// After this call, the first Ctrl-C or SIGTERM only sets stop_requested; a second one ends the process at
/// once. Call it before any thread is started.
void catch_signals();
bool stop_requested() noexcept;
/// After this call Ctrl-C or SIGTERM runs `before_end`, and ends the process as it would have without us. For
/// a command that has no results to keep. Call it before any thread is started.
void end_on_signals(void (*before_end)());
/// Waits until the descriptor has something to read. False after such a signal.
bool wait_for_input(int descriptor);

/// Thrown by a command that a signal stopped in an orderly way. The message is printed and the exit code is
/// 128 + the signal, so that a script does not take the command for finished.
struct Stopped {
  std::string message;
};
/// Thrown by a command that has answered its lines, but for those that failed.
class LinesFailed : public Error {
 public:
  using Error::Error;
};

}  // namespace fovea::cli
