#include "fovea/inspect/report.h"

#include <cstdlib>

#include "fovea/files/bytes.h"
#include "inspect/charts.h"
#include "inspect/page.h"

namespace fovea::inspect {
namespace {

bool reads_as_number(const std::string& text) {
  if (text.empty()) return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  while (*end == ' ' || *end == '%') ++end;
  return *end == '\0';
}

std::string draw_table(const Table& table) {
  // A column is one of numbers when its cells are, so that its header stands over them.
  std::vector<bool> numeric(table.header.size(), !table.rows.empty());
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size() && c < numeric.size(); ++c) {
      if (!reads_as_number(row[c]) && row[c] != "–" && row[c] != "-") numeric[c] = false;
    }
  }
  std::string out = "<div class=\"data\"><table><caption>" + escape_html(table.caption) + "</caption>\n";
  if (!table.header.empty()) {
    out += "<thead><tr>";
    for (std::size_t c = 0; c < table.header.size(); ++c) {
      out += numeric[c] ? "<th scope=\"col\" class=\"number\">" : "<th scope=\"col\">";
      out += escape_html(table.header[c]) + "</th>";
    }
    out += "</tr></thead>\n";
  }
  out += "<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      out += (c < numeric.size() && numeric[c]) ? "<td class=\"number\">" : "<td>";
      out += escape_html(row[c]) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string figure(const Drawing& drawing, const char* kind) {
  return std::string("<figure") + kind + "><figcaption>" + escape_html(drawing.title) + "</figcaption>\n" +
         svg_element(drawing) + "</figure>\n";
}

}  // namespace

std::string render_report(const ReportData& report, const HtmlOptions& options) {
  Palette palette;
  std::string body;
  for (const std::string& note : report.notes) body += "<p>" + escape_html(note) + "</p>\n";
  for (const BarChart& chart : report.bars)
    body += figure(lay_out(chart, palette, rough_width, "render_report"), " class=\"wide\"");
  if (!report.charts.empty()) {
    body += "<div class=\"charts\">\n";
    for (const LineChart& chart : report.charts) body += figure(lay_out(chart, palette, rough_width), "");
    body += "</div>\n";
  }
  if (!report.tables.empty()) body += "<h2>Numbers</h2>\n";
  for (const Table& table : report.tables) body += draw_table(table);
  if (!report.pages.empty()) body += "<h2>Where the models look</h2>\n";
  for (std::size_t i = 0; i < report.pages.size(); ++i) body += viewer_section(report.pages[i], i, "h3");
  return assemble_page(report.title, body, viewer_json(report.pages, options));
}

void write_report(const std::string& path, const ReportData& report, const HtmlOptions& options) {
  files::write_file(path, render_report(report, options));
}

}  // namespace fovea::inspect
