// A report of a whole experiment: curves, bars, tables and matrices, in one self-contained page.
#pragma once

#include <string>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/drawing.h"
#include "fovea/inspect/html.h"

namespace fovea::inspect {

struct Curve {
  std::string name;  ///< written at the curve's end; equal names get equal colours throughout the report
  std::vector<Point> points;
};

/// One diagram of curves. A point that is not finite interrupts its curve.
struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

struct BarSeries {
  std::string name;
  std::vector<double> values;  ///< one a bucket; NaN where there is none
};

/// Bars in groups: BLEU by sentence length, one series a model.
struct BarChart {
  std::string title, x_label, y_label;
  std::vector<std::string> buckets;
  std::vector<BarSeries> series;
};

struct Table {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  ///< a column whose cells read as numbers is set flush right
};

struct ReportData {
  std::string title;
  std::vector<std::string> notes;  ///< paragraphs under the title
  std::vector<BarChart> bars;
  std::vector<LineChart> charts;
  std::vector<Table> tables;
  std::vector<InspectPage> pages;
};

/// The report as text. Throws InvalidArgument if a map's sizes disagree or a series has not one value a
/// bucket.
std::string render_report(const ReportData& report, const HtmlOptions& options = {});

/// Writes render_report. Throws FileError if the file cannot be written.
void write_report(const std::string& path, const ReportData& report, const HtmlOptions& options = {});

}  // namespace fovea::inspect
