// `--profile FILE`: where the time of a command goes.
#pragma once

#include <optional>
#include <string>

#include "cli/options.h"
#include "fovea/core/profile.h"

namespace fovea::cli {

/// Gives commands the option, and records the one that runs.
class ProfiledRun {
 public:
  /// Adds the option to the command of this name, which must be registered already. `app` and this object
  /// must live until `finish`.
  void add_to(Command app, const std::string& name);
  /// After the command, or when it was stopped: prints the shares of the parts to standard error and writes
  /// the trace. Throws FileError. Does nothing without the option, and the second time.
  void finish();

 private:
  std::string file_;
  std::optional<Profile> profile_;
};

}  // namespace fovea::cli
