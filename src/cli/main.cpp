#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/profiled_run.h"
#include "cli/texts.h"
#include "core/excerpt.h"

namespace fovea::cli {
namespace {

std::atomic<int> caught{0};

// A second signal ends the process the way it would have without us.
[[noreturn]] void end_by(int signal) {
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  std::_Exit(128 + signal);
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The command that was asked for, as deep as it was understood.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

}  // namespace

// The option or command nearest to each word that was not understood, if one is near.
static void suggest(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(below->get_name());
  for (const std::string& word : app.remaining(true)) {
    const std::string bare = word.substr(0, word.find('='));
    const auto near = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
      return edit_distance(a, bare) < edit_distance(b, bare);
    });
    if (near != names.end() && edit_distance(*near, bare) <= 1 + bare.size() / 4)
      std::fprintf(stderr, "'%s': did you mean %s?\n", fovea::excerpt(bare).c_str(), near->c_str());
  }
}

void add_weights_option(CLI::App& command, std::string& weights) {
  command
      .add_option("--weights", weights,
                  "numbers of the matrices; int8: a quarter of the bytes to read, bf16: half; both with "
                  "coarser products")
      ->check(CLI::IsMember({"f32", "int8", "bf16"}));
}

CLI::Validator finite() {
  return CLI::Validator(
      [](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return end != text.c_str() && !std::isfinite(value) ? "Value " + text + " is no finite number"
                                                            : std::string();
      },
      "");
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  const auto whole = [](const std::string& path) {
    // A pipe such as /dev/fd/63 has no canonical path, and is no file that is written.
    std::error_code no_path;
    const std::filesystem::path canonical =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path), no_path);
    return no_path ? std::filesystem::path(path) : canonical;
  };
  return whole(a) == whole(b);
}

bool stop_requested() noexcept {
  return caught != 0;
}

// Output that could not be written, such as on a full disk, is a failure.
static int end_of_output() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  std::fprintf(stderr, "fovea: standard output cannot be written\n");
  return 1;
}

// No handler: Debian's oneDNN 2.6.3 points the stack pointer into its workspace inside a product, and a
// handler's frame there overwrites the heap. The
// signals are blocked before any other thread starts, which inherits that, and one thread waits for them.
void catch_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set] {
    for (int signal = 0;;) {
      if (sigwait(&set, &signal) == 0 && caught.exchange(signal) != 0) end_by(signal);
    }
  }).detach();
}

}  // namespace fovea::cli

int main(int argc, char** argv) {
  CLI::App app{"fovea: train, run and look inside attention models; run the attention engine on NumPy files"};
  app.set_version_flag("--version", "fovea " FOVEA_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  fovea::cli::register_train(app);
  fovea::cli::register_translate(app);
  fovea::cli::register_shortlist(app);
  fovea::cli::register_summarize(app);
  fovea::cli::register_generate(app);
  fovea::cli::register_embed(app);
  fovea::cli::register_classify(app);
  fovea::cli::register_tag(app);
  fovea::cli::register_answer(app);
  fovea::cli::register_fill(app);
  fovea::cli::register_rank(app);
  fovea::cli::register_convert(app);
  fovea::cli::register_show(app);
  fovea::cli::register_tokenize(app);
  fovea::cli::register_score(app);
  fovea::cli::register_corpus(app);
  fovea::cli::register_inspect(app);
  fovea::cli::register_attend(app);
  fovea::cli::register_bench(app);
  fovea::cli::register_demo(app);
  fovea::cli::ProfiledRun profiled;
  profiled.add_to(app, {"train", "translate", "summarize", "generate", "embed", "classify", "tag", "answer",
                        "fill", "rank"});
  try {
    const std::vector<std::string> arguments = fovea::cli::marked_arguments(app, {argv, argv + argc});
    std::vector<const char*> words;
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    app.parse(static_cast<int>(words.size()), words.data());
    profiled.finish();
    return fovea::cli::end_of_output();
  } catch (const fovea::cli::Stopped& stopped) {
    std::fprintf(stderr, "%s\n", stopped.message.c_str());
    try {
      profiled.finish();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fovea: %s\n", error.what());
    }
    return 128 + fovea::cli::caught;
  } catch (const CLI::ParseError& error) {
    // The message repeats the value, and an argument may be of any length.
    std::ostringstream message;
    const int code = app.exit(error, std::cout, message);
    if (code == 0) return fovea::cli::end_of_output();  // --help, --version
    std::fprintf(stderr, "%s", fovea::excerpt_words(message.str(), 200).c_str());
    fovea::cli::suggest(app);
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "fovea: memory ran out\n");
  } catch (const std::exception& error) {
    // A single line, even if a file's content put line breaks into the message.
    std::string line = error.what();
    std::replace_if(
        line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; },
        ' ');
    std::fprintf(stderr, "fovea: %s\n", line.c_str());
  }
  return 1;
}
