#include <csignal>
#include <cstdio>
#include <exception>

#include "cli/commands.h"

namespace fovea::cli {
namespace {

volatile std::sig_atomic_t signals = 0;

void on_signal(int signal) {
  if (signals > 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  signals = 1;
}

}  // namespace

bool stop_requested() noexcept {
  return signals > 0;
}
void catch_signals() noexcept {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

}  // namespace fovea::cli

int main(int argc, char** argv) {
  CLI::App app{"fovea: train, run and look inside attention models; run the attention engine on NumPy files"};
  app.set_version_flag("--version", "fovea 0.1.0");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  fovea::cli::register_train(app);
  fovea::cli::register_translate(app);
  fovea::cli::register_score(app);
  fovea::cli::register_corpus(app);
  fovea::cli::register_inspect(app);
  fovea::cli::register_attend(app);
  fovea::cli::register_bench(app);
  fovea::cli::register_demo(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "fovea: memory ran out\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea: %s\n", error.what());
  }
  return 1;
}
