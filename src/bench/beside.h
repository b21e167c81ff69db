// Other libraries beside the benches of whole models: their turns, and their times.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/rivals.h"

namespace fovea::bench {

/// Another library's time for what a row measures: the median of all turns, or why there is none.
struct RivalTime {
  std::string name;
  double seconds = 0.0;
  std::string refused = {};
  std::string note = {};  ///< what the comparison of results gave, where there is one
};

/// Seconds of each run, by the rival's name.
using RivalTurns = std::map<std::string, std::vector<double>>;

/// The rivals of one model. They are dropped at the end.
class Beside {
 public:
  /// `request` returns what the script prepares; null: the script has no such model. It is called only if
  /// there is a rival. `check` gets the answer of each rival that has prepared the request. It returns a
  /// description of what differs from Fovea's result, or "" if nothing does. A rival whose answer differs is
  /// refused.
  Beside(Rivals& rivals, const RivalsOptions& options, const std::function<nlohmann::json()>& request,
         const std::function<std::string(const nlohmann::json&)>& check = {});
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  /// Lets each rival run `count` times, and adds its times to `turns`. `how`: what else the script must know.
  void run(std::int64_t count, const nlohmann::json& how, RivalTurns& turns) const;
  std::vector<RivalTime> times(const RivalTurns& turns) const;

 private:
  Rivals& rivals_;
  std::vector<RivalTime> known_;
};

}  // namespace fovea::bench
