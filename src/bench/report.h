// The report of `fovea bench kernels`: every kernel against the limits of this machine and against other
// libraries, in one run. Peaks are probed and all ways of a row run in turns, so that what else the machine
// does falls on all of them alike.
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
  double seconds = 2.0;         ///< to measure a row for, where its rounds do not take longer
  double probe_seconds = 0.02;  ///< for each peak, beside every round
  std::int64_t rounds = 3;      ///< turns of all ways of a row, at least
  std::int64_t pause_ms = 10;   ///< before each way
  std::string kernel;           ///< forced; empty: the best
  RivalsOptions rivals;         ///< its threads are those of the report; 0: all
};

/// Told of a report while it is made. A report is plain JSON, as bench/text.h reads it.
struct ReportListener {
  /// Machine, peaks and rivals are known, no row is measured; about how long the rows will take.
  std::function<void(const nlohmann::json& report, double seconds)> begin;
  /// `report` ends with a row more than before.
  std::function<void(const nlohmann::json& report)> row;
};

/// The cases whose names contain one of `parts`, or all where there are none.
std::vector<BenchCase> cases_named(CaseSet set, const std::vector<std::string>& parts);

nlohmann::json measure_report(const ReportOptions& options, const std::vector<BenchCase>& cases,
                              const ReportListener& listener);

/// Throw FileError.
nlohmann::json read_report(const std::string& path);
void write_report(const std::string& path, const nlohmann::json& report);

}  // namespace fovea::bench
