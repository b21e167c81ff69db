#include "bench/text.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "bench/probes.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::bench {
namespace {

using nlohmann::json;

// "152 GFLOP/s".
std::string rate_text(double rate, const std::string& unit) {
  return rate >= 1e12 ? fmt::format("{:.2f} T{}", rate / 1e12, unit)
                      : fmt::format("{:.1f} G{}", rate / 1e9, unit);
}

const char* meaning_of(Probe probe) {
  switch (probe) {
    case Probe::fma_f32:
      return "f32 multiply-adds on registers";
    case Probe::dot_bf16:
      return "bf16 dot products of AVX-512";
    case Probe::amx_bf16:
      return "bf16 tile products of AMX";
    case Probe::exponential:
      return "e^x of the f32 kernels, with sum";
    case Probe::exponential_16:
      return "2^x for 16 bits (degree 3), with sum";
    case Probe::tanh:
      return "tanh of the f32 kernels, with sum";
    case Probe::read:
      return "reading 64 MiB";
    case Probe::update:
      return "reading and writing 64 MiB";
    case Probe::dot_int8:
      return "dot products of int8";
  }
  return "";
}

std::string machine_text(const json& report) {
  const json& machine = report.at("machine");
  return fmt::format("fovea {} on {}; threads: {}; kernels: {}.", report.at("version").get<std::string>(),
                     machine.at("cpu").get<std::string>(), report.at("threads").get<int>(),
                     machine.at("kernels").get<std::string>());
}

struct PeakLine {
  std::string meaning, one, all;
};
std::vector<PeakLine> peak_lines(const json& report) {
  std::vector<PeakLine> lines;
  for (const Probe probe : all_probes) {
    const json& peak = report.at("peaks").at(to_string(probe));
    if (peak.contains("absent")) {
      lines.push_back({meaning_of(probe), peak.at("absent").get<std::string>(), ""});
    } else {
      lines.push_back({meaning_of(probe), rate_text(peak.at("one_thread").get<double>(), unit_of(probe)),
                       rate_text(peak.at("all_threads").get<double>(), unit_of(probe))});
    }
  }
  return lines;
}

std::vector<std::string> rival_names(const json& report) {
  std::vector<std::string> names;
  for (const json& rival : report.at("rivals")) {
    if (!rival.contains("absent")) names.push_back(rival.at("name").get<std::string>());
  }
  return names;
}

// The texts of a row's cells, in the order of the columns.
struct Cells {
  std::string ms, share, bound, beside;
  std::vector<std::string> rivals;
};
Cells cells_of(const json& report, const json& row) {
  Cells cells;
  if (row.contains("absent")) {
    cells = {"-", "-", row.at("absent").get<std::string>(), "-", {}};
  } else {
    cells.ms = fmt::format("{:.4g}", 1e3 * row.at("seconds").at("median").get<double>());
    cells.share = fmt::format("{:.0f} %", 100 * row.at("share").get<double>());
    cells.bound = row.at("limit").at("bound").get<std::string>();
    if (row.contains("error")) cells.bound += fmt::format(", error {:.1e}", row.at("error").get<double>());
    cells.beside = row.contains("beside")
                       ? fmt::format("{:.2f} {}", row.at("beside").at("ratio").get<double>(),
                                     row.at("beside").at("name").get<std::string>())
                       : "-";
  }
  for (const std::string& name : rival_names(report)) {
    std::string text = "-";
    for (const json& rival : row.value("rivals", json::array())) {
      if (rival.at("name") == name && rival.contains("ratio"))
        text = fmt::format("{:.2f}", rival.at("ratio").get<double>());
    }
    cells.rivals.push_back(text);
  }
  return cells;
}

std::string markdown_of(const json& report) {
  std::string text = machine_text(report) + "\n\n| peak | one thread | all threads |\n|---|---|---|\n";
  for (const PeakLine& line : peak_lines(report))
    text += fmt::format("| {} | {} | {} |\n", line.meaning, line.one, line.all);
  text += "\n";
  for (const json& rival : report.at("rivals")) {
    const std::string name = rival.at("name").get<std::string>();
    text += rival.contains("absent")
                ? fmt::format("- {}: absent: {}\n", name, rival.at("absent").get<std::string>())
                : fmt::format("- {}: {} {}\n", name, rival.at("library").get<std::string>(),
                              rival.at("version").get<std::string>());
  }
  std::string group;
  for (const json& row : report.at("rows")) {
    const std::string title =
        fmt::format("{}, {}", row.at("group").get<std::string>(), row.at("dtype").get<std::string>());
    if (title != group) {
      text += fmt::format("\n### {}\n\n| shape | mask | pass | ms | of limit | bound | beside |", title);
      for (const std::string& name : rival_names(report)) text += fmt::format(" {} |", name);
      text += "\n|---|---|---|---|---|---|---|";
      for (std::size_t n = 0; n < rival_names(report).size(); ++n) text += "---|";
      text += "\n";
      group = title;
    }
    const Cells cells = cells_of(report, row);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |", row.at("shape").get<std::string>(),
                        row.at("mask").get<std::string>(), row.at("pass").get<std::string>(), cells.ms,
                        cells.share, cells.bound, cells.beside);
    for (const std::string& cell : cells.rivals) text += fmt::format(" {} |", cell);
    text += "\n";
  }
  return text + "\n" + refusals_text(report);
}

}  // namespace

std::string peaks_text(const json& report) {
  std::string text =
      machine_text(report) + fmt::format("\n{:<38} {:>18} {:>18}\n", "peak", "one thread", "all threads");
  for (const PeakLine& line : peak_lines(report))
    text += fmt::format("{:<38} {:>18} {:>18}\n", line.meaning, line.one, line.all);
  for (const json& rival : report.at("rivals")) {
    text += fmt::format("rival {:<12} {}\n", rival.at("name").get<std::string>(),
                        rival.contains("absent") ? "absent: " + rival.at("absent").get<std::string>()
                                                 : rival.at("library").get<std::string>() + " " +
                                                       rival.at("version").get<std::string>());
  }
  return text;
}

std::string header_text(const json& report) {
  std::string text =
      "ms: the median of Fovea's runs. limit: the share of the largest of product, exponential and byte "
      "time, at "
      "the peaks probed in the same turns. beside: Fovea's time divided by that of another call: the dense "
      "call "
      "of as many pairs, the next sizes that fill AMX's tiles, or full precision. A rival's number is its "
      "time "
      "divided by Fovea's: above 1, Fovea is faster.\n";
  text += fmt::format("{:<66} {:>10} {:>6} {:>11} {:>11}", "row", "ms", "limit", "bound", "beside");
  for (const std::string& name : rival_names(report)) text += fmt::format(" {:>11}", name);
  return text + "\n";
}

std::string row_text(const json& report, const json& row) {
  const Cells cells = cells_of(report, row);
  std::string text = fmt::format("{:<66} {:>10} {:>6} {:>11} {:>11}", row.at("name").get<std::string>(),
                                 cells.ms, cells.share, cells.bound, cells.beside);
  for (const std::string& cell : cells.rivals) text += fmt::format(" {:>11}", cell);
  return text + "\n";
}

std::string refusals_text(const json& report) {
  std::map<std::string, int> reasons;
  for (const json& row : report.at("rows")) {
    for (const json& rival : row.value("rivals", json::array())) {
      if (rival.contains("refused"))
        ++reasons[rival.at("name").get<std::string>() + ": " + rival.at("refused").get<std::string>()];
    }
  }
  std::string text;
  for (const auto& [reason, rows] : reasons) text += fmt::format("- {} ({} rows)\n", reason, rows);
  return text.empty() ? text : "Not measured (-):\n\n" + text;
}

void write_markdown(const std::string& path, const json& report) {
  constexpr std::size_t longest_page = std::size_t{1} << 24;
  std::string page = files::read_file(path, longest_page);
  const std::string begin = "<!-- bench:begin -->\n", end = "<!-- bench:end -->";
  const std::size_t from = page.find(begin), to = page.find(end);
  if (from == std::string::npos || to == std::string::npos || to < from)
    throw FileError(path, 0,
                    "has no place for the table between <!-- bench:begin --> and <!-- bench:end -->");
  page.replace(from + begin.size(), to - from - begin.size(), "\n" + markdown_of(report) + "\n");
  files::write_file(path, page);
}

}  // namespace fovea::bench
