// What the rows of the benches of whole models have in common: shares of parts, and lines of other libraries.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/beside.h"

namespace fovea::cli {

/// The parts that are half a per cent or more: "products 77, attention 12".
std::string parts_text(const std::vector<std::pair<std::string, double>>& parts);

class RivalLines {
 public:
  /// A line for each rival below a row of `model` that took `seconds`. Why a rival has no time is printed
  /// once a model.
  void print(const std::string& model, double seconds, const std::vector<bench::RivalTime>& rivals);

 private:
  std::set<std::string> told_;
};

}  // namespace fovea::cli
