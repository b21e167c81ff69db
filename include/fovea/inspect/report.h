// A report of a whole experiment: curves, bars, tables and matrices, in one self-contained page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/drawing.h"
#include "fovea/inspect/html.h"

namespace fovea::inspect {

struct Curve {
  std::string name;  ///< written at the curve's end; equal names have equal colours throughout the report
  std::vector<Point> points;
};

/// Equal steps along an axis are equal differences, or factors of ten or two. A logarithmic axis is labelled
/// with the values, not with their logarithms, and a point without a logarithm is left out.
enum class Scale : std::uint8_t { linear, log10, log2 };

/// One diagram of curves. A point that is not finite interrupts its curve.
struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves = {};
  Scale x_scale = Scale::linear, y_scale = Scale::linear;
};

struct BarSeries {
  std::string name;
  std::vector<double> values;  ///< one for each bucket; NaN if it has none
};

/// Bars in groups, such as BLEU by sentence length, with one series for each model.
struct BarChart {
  std::string title, x_label, y_label;
  std::vector<std::string> buckets;
  std::vector<BarSeries> series;
};

struct Table {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  ///< a column of numbers is aligned right
};

struct ReportData {
  std::string title;
  std::vector<std::string> notes;  ///< paragraphs under the title
  std::vector<BarChart> bars;
  std::vector<LineChart> charts;
  std::vector<Table> tables;
  std::vector<InspectPage> pages;
};

/// The report as text. Throws InvalidArgument if a map's sizes disagree or a series does not have one value
/// for each bucket.
std::string render_report(const ReportData& report, const HtmlOptions& options = {});

/// Writes render_report. Throws FileError if the file cannot be written.
void write_report(const std::string& path, const ReportData& report, const HtmlOptions& options = {});

}  // namespace fovea::inspect
