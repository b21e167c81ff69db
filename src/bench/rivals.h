// Other libraries' attention, in one Python process of their own (bench/rivals.py), spoken to by lines of
// JSON.
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
  std::string script;  ///< bench/rivals.py
  std::vector<std::string> without;
  int threads = 1;
};

class Rivals {
 public:
  /// Starts the process and asks what it has. Never throws: what cannot be had is absent, and says why.
  explicit Rivals(const RivalsOptions& options);
  ~Rivals();
  Rivals(const Rivals&) = delete;
  Rivals& operator=(const Rivals&) = delete;

  /// [{"name", "library", "version"} or {"name", "absent": reason}, ...]
  const nlohmann::json& list() const { return list_; }
  /// Whether there is somebody to prepare anything for.
  bool any() const { return to_ != nullptr || (starts_ > 0 && starts_ < most_starts); }

  /// Every rival's preparation of a case, a warm-up and a comparison with `output` included: [{"name",
  /// "error", "seconds"} or {"name", "refused": reason}, ...]. Absent rivals are not among them. Empty where
  /// no process answers. One that ends is started again, without the rival that it was preparing.
  nlohmann::json prepare(nlohmann::json request);
  /// Seconds of each of `count` runs; empty where it fails, which ends the rival's part in this row.
  std::vector<double> run(const std::string& name, std::int64_t count);
  /// Lets go of the case.
  void drop();

 private:
  static constexpr int most_starts = 30;  // in all: each costs the rivals' imports
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
