// Other libraries in one separate Python process: their attention (bench/rivals.py), or their trainings
// (bench/train_rivals.py). Requests and answers are lines of JSON.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fovea::bench {

struct RivalsOptions {
  std::string python;  ///< empty: .venv/bin/python where it is there, else python3; "none": no rivals
  std::string script;  ///< such as bench/rivals.py
  /// Of the rivals that the script has, for the list of those that are absent.
  std::vector<std::string> names{"torch sdpa", "torch flex", "torch eager", "ort mha", "ort gqa", "onednn"};
  std::vector<std::string> without;
  int threads = 1;
};

class Rivals {
 public:
  /// Starts the process and asks for the list of its libraries. Never throws: a library that is missing is
  /// listed as absent, with the reason.
  explicit Rivals(const RivalsOptions& options);
  ~Rivals();
  Rivals(const Rivals&) = delete;
  Rivals& operator=(const Rivals&) = delete;

  /// [{"name", "library", "version"} or {"name", "absent": reason}, ...]
  const nlohmann::json& list() const { return list_; }
  /// Whether a process runs, or may be started again.
  bool any() const { return to_ != nullptr || (starts_ > 0 && starts_ < most_starts); }

  /// Lets every rival prepare a case, which includes a warm-up and a comparison with `output`. Returns
  /// [{"name", "error", "seconds"} or {"name", "refused": reason}, ...] without absent rivals; empty where no
  /// process answers. A process that ends is started again, without the rival that it was preparing.
  nlohmann::json prepare(nlohmann::json request);
  /// Seconds of each of `count` runs; `how` is what the script wants to know besides. Empty where the rival
  /// fails, which then takes no further part in this row.
  std::vector<double> run(const std::string& name, std::int64_t count,
                          nlohmann::json how = nlohmann::json::object());
  /// Releases the case.
  void drop();

 private:
  static constexpr int most_starts = 30;  // in total: each start costs the imports of the rivals
  void start();
  void end();
  nlohmann::json ask(const nlohmann::json& request);

  RivalsOptions options_;
  int starts_ = 0;
  pid_t child_ = -1;
  nlohmann::json preparing_;  // the name of the rival that is being prepared
  std::FILE *to_ = nullptr, *from_ = nullptr;
  nlohmann::json list_ = nlohmann::json::array();
};

}  // namespace fovea::bench
