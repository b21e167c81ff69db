// The lines of other libraries below a row of the benches of whole models.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/beside.h"

namespace fovea::cli {

class RivalLines {
 public:
  /// A line for each rival below a row of `model` that took `seconds`. Why a rival has no time is printed
  /// once a model.
  void print(const std::string& model, double seconds, const std::vector<bench::RivalTime>& rivals);

 private:
  std::set<std::string> told_;
};

}  // namespace fovea::cli
