// What the rows of the benches of whole models have in common: shares of parts, and lines of other libraries.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/beside.h"
#include "cli/options.h"

namespace fovea::cli {

/// The parts that are half a per cent or more: "products 77, attention 12".
std::string parts_text(const std::vector<std::pair<std::string, double>>& parts);

/// Adds --rivals and --rivals-script; `libraries` is what the Python should have. They run by default.
void add_rivals(Command command, bench::RivalsOptions& options, const std::string& libraries);

class RivalLines {
 public:
  /// A line for each rival below a row of `model` that took `seconds`. Why a rival has no time is printed
  /// once a model.
  void print(const std::string& model, double seconds, const std::vector<bench::RivalTime>& rivals);

 private:
  std::set<std::string> told_;
};

}  // namespace fovea::cli
