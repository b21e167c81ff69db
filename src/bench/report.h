// The report of `fovea bench kernels`: every kernel compared with the limits of this machine and with other
// libraries, in one run. Fovea, the rivals and the probes run in turns, so that other work of the machine
// slows all of them alike.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/rivals.h"

namespace fovea::bench {

struct ReportOptions {
  double seconds = 2.0;         ///< time for a row, unless its rounds take longer
  double probe_seconds = 0.02;  ///< time for each peak, in every round
  std::int64_t rounds = 3;      ///< the least number of turns for each row
  std::int64_t pause_ms = 10;   ///< pause before each contender
  std::string kernel;           ///< a kernel to force; empty: the best
  RivalsOptions rivals;         ///< its thread count is that of the whole report; 0: all
};

/// Functions that are called while a report is made. A report is plain JSON, as bench/text.h reads it.
struct ReportListener {
  /// Called when machine, peaks and rivals are known, before the first row. `seconds` estimates the time of
  /// all rows.
  std::function<void(const nlohmann::json& report, double seconds)> begin;
  /// Called after each row, with which `report` ends.
  std::function<void(const nlohmann::json& report)> row;
};

/// The cases whose names contain one of `parts`, or all where there are none.
std::vector<BenchCase> cases_named(CaseSet set, const std::vector<std::string>& parts);

nlohmann::json measure_report(const ReportOptions& options, const std::vector<BenchCase>& cases,
                              const ReportListener& listener);

/// Both throw FileError.
nlohmann::json read_report(const std::string& path);
void write_report(const std::string& path, const nlohmann::json& report);

}  // namespace fovea::bench
