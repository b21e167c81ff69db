#include "gallery.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/inspect/drawing_file.h"
#include "fovea/nn/module.h"
#include "fovea/pictures/render.h"

namespace gallery {
namespace {

using Clock = std::chrono::steady_clock;
namespace files = std::filesystem;

struct Options {
  std::vector<std::uint64_t> seeds{1};
  bool quick = false;
  std::string output, data, redraw;
  std::vector<std::string> pages;
  int threads = 1;
};

// In hundredths, with one decimal: what rounds to zero has no sign.
std::string hundredths(double value) {
  const std::string text = fmt::format("{:.1f}", 100.0 * value);
  return text == "-0.0" ? "0.0" : text;
}

std::string text_of(double value, Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Unit::percent:
      return hundredths(value) + " %";
    case Unit::points:
      return hundredths(value) + " points";
    case Unit::seconds:
      return value < 1e-6   ? fmt::format("{:.3g} ns", 1e9 * value)
             : value < 1e-3 ? fmt::format("{:.3g} µs", 1e6 * value)
             : value < 1.0  ? fmt::format("{:.3g} ms", 1e3 * value)
                            : fmt::format("{:.3g} s", value);
    case Unit::per_second:
      return fmt::format("{:.0f} / s", value);
    case Unit::ratio:
      return fmt::format("{:.3g}×", value);
    case Unit::bytes:
      return value < 1 << 20 ? fmt::format("{:.1f} KiB", value / (1 << 10))
                             : fmt::format("{:.1f} MiB", value / (1 << 20));
    case Unit::count:
      return fmt::format("{:.0f}", value);
    case Unit::bits:
      return fmt::format("{:.3f} bits", value);
    case Unit::number:
      break;
  }
  return fmt::format("{:.4g}", value);
}

bool holds(const Figure& f) {
  return !(f.at_least && !(f.value >= *f.at_least)) && !(f.at_most && !(f.value <= *f.at_most));
}

std::string promise_of(const Figure& f) {
  std::string text;
  if (f.at_least) text = "≥ " + text_of(*f.at_least, f.unit);
  if (f.at_most) text += (text.empty() ? "≤ " : ", ≤ ") + text_of(*f.at_most, f.unit);
  return text;
}

}  // namespace

struct Run::State {
  const About& about;
  const Options& options;
  std::uint64_t seed = 1;
  std::string folder;
  std::vector<Figure> figures;
  fovea::inspect::ReportData report;
  std::map<std::string, std::vector<fovea::inspect::Point>> losses;
  std::vector<std::string> loss_order;
  Clock::time_point last_said = Clock::now();
};

bool Run::is_first_seed() const {
  return state_->seed == state_->options.seeds.front();
}
std::uint64_t Run::seed() const {
  return state_->seed;
}
bool Run::quick() const {
  return state_->options.quick;
}
std::int64_t Run::scaled(std::int64_t full, std::int64_t little) const {
  return quick() ? little : full;
}
const std::string& Run::data() const {
  return state_->options.data;
}
int Run::threads() const {
  return state_->options.threads;
}
const std::string& Run::folder() const {
  return state_->folder;
}
fovea::inspect::ReportData& Run::report() {
  return state_->report;
}

void Run::say(const std::string& line) {
  fmt::print(stderr, "{}, seed {}: {}\n", state_->about.name, state_->seed, line);
  state_->last_said = Clock::now();
}

std::function<void(const fovea::train::FitStep&)> Run::progress(const std::string& what) {
  if (!state_->losses.contains(what)) state_->loss_order.push_back(what);
  state_->losses[what];
  // The loss of single steps is noise: a point is the mean of 1/100 of the training.
  return [this, what, sum = 0.0, count = 0](const fovea::train::FitStep& step) mutable {
    sum += step.loss;
    ++count;
    if (count >= std::max<std::int64_t>(1, step.updates / 100) || step.update == step.updates) {
      state_->losses[what].push_back({static_cast<double>(step.update), sum / count});
      sum = count = 0;
    }
    const bool silent = Clock::now() - state_->last_said < std::chrono::seconds(10);
    if (silent && step.update != step.updates) return;
    say(fmt::format("{}: update {} of {}, loss {:.4f}, {:.0f} s", what, step.update, step.updates,
                    state_->losses[what].empty() ? step.loss : state_->losses[what].back().y, step.seconds));
  };
}

void Run::figure(const Figure& figure) {
  state_->figures.push_back(figure);
}

namespace {

// Renders folder/picture.json as folder/picture-light.png and folder/picture-dark.png.
void render_picture(const std::string& folder) {
  const fovea::inspect::Drawing drawing = fovea::inspect::load_drawing(folder + "/picture.json");
  fovea::pictures::Uncovered uncovered;
  for (const auto& [name, theme] :
       {std::pair("light", fovea::pictures::Theme::light), {"dark", fovea::pictures::Theme::dark}})
    uncovered = fovea::pictures::write(folder + "/picture-" + name + ".png", drawing, {.theme = theme});
  if (!uncovered.empty())
    fmt::print(stderr, "{}: the picture shows boxes, no font of this machine has: {}\n", folder,
               fmt::join(uncovered, " "));
}

}  // namespace

void Run::picture(const fovea::inspect::Drawing& picture) {
  if (is_first_seed()) picture_of_all(picture);
}

void Run::picture_of_all(const fovea::inspect::Drawing& picture) {
  fovea::inspect::save_drawing(state_->options.output + "/picture.json", picture);
  render_picture(state_->options.output);
}

namespace {

// A Markdown table: a row a figure, a column a seed.
std::string table_of(const std::vector<std::uint64_t>& seeds,
                     const std::vector<std::vector<Figure>>& figures) {
  std::string text = "| figure | of |";
  for (const std::uint64_t seed : seeds) text += fmt::format(" seed {} |", seed);
  text += " promised |\n|---|---|";
  for (std::size_t i = 0; i < seeds.size(); ++i) text += "---:|";
  text += "---|\n";
  for (const Figure& row : figures.front()) {
    std::string values;
    for (const std::vector<Figure>& of_seed : figures) {
      const auto same = [&](const Figure& f) { return f.what == row.what && f.of == row.of; };
      const auto found = std::find_if(of_seed.begin(), of_seed.end(), same);
      values += " " + (found == of_seed.end() ? "-" : text_of(found->value, found->unit)) + " |";
    }
    text += fmt::format("| {} | {} |{} {} |\n", row.what, row.of, values, promise_of(row));
  }
  return text;
}

// A page, and where in it the table of `name` stands, between its markers.
struct Place {
  std::string text;
  std::size_t from = 0, to = 0;
};
Place find_table(const std::string& page, const std::string& name) {
  std::string text = fovea::files::read_file(page, std::size_t{1} << 24);
  const std::string begin = "<!-- figures " + name + " -->\n", end = "<!-- end " + name + " -->";
  const std::size_t from = text.find(begin);
  const std::size_t to = from == std::string::npos ? from : text.find(end, from);
  if (to == std::string::npos)
    throw fovea::FileError(page, 0,
                           "has no lines '" + begin.substr(0, begin.size() - 1) + "' and '" + end + "'");
  return {std::move(text), from + begin.size(), to};
}

void write_into_page(const std::string& page, const std::string& name, const std::string& table) {
  Place place = find_table(page, name);
  place.text.replace(place.from, place.to - place.from, table);
  fovea::files::write_file(page, place.text);
}

// The page of one seed, with its figures first.
void write_page(const std::string& folder, std::uint64_t seed, const std::vector<Figure>& figures,
                fovea::inspect::ReportData report) {
  fovea::inspect::Table table{.caption = fmt::format("Figures, seed {}", seed),
                              .header = {"figure", "of", "value", "promised"},
                              .rows = {}};
  for (const Figure& f : figures)
    table.rows.push_back({f.what, f.of, text_of(f.value, f.unit), promise_of(f)});
  report.tables.insert(report.tables.begin(), table);
  fovea::inspect::write_report(folder + "/report.html", report);
}

}  // namespace

int run(int argc, char** argv, const About& about, const std::function<void(Run&)>& example) {
  Options options;
  CLI::App app(about.title, about.name);
  app.add_option("--seeds", options.seeds, "seeds, each a whole run: 1,2,3")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "everything once on a scale of seconds; promises are not held");
  app.add_option("--output", options.output, "folder of the report and the picture (default gallery/NAME)");
  if (!about.data.empty()) app.add_option("--data", options.data, about.data);
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--page", options.pages, "write the table of figures between the markers of this file");
  app.add_option("--redraw", options.redraw,
                 "draw the pictures of FOLDER/picture.json again, without training");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.output.empty()) options.output = "gallery/" + about.name;
  fovea::nn::use_threads(options.threads);
  // Figures of a user's files are in a table of their own, beside that of the generated data.
  const std::string marker = about.name + (options.data.empty() ? "" : " data");
  try {
    if (!options.redraw.empty()) {
      render_picture(options.redraw);
      return 0;
    }
    // A page without a place for the table is refused before the training, not after it.
    for (const std::string& page : options.pages) (void)find_table(page, marker);
    std::vector<std::vector<Figure>> figures;
    for (const std::uint64_t seed : options.seeds) {
      Run::State state{.about = about, .options = options, .seed = seed};
      state.folder = options.output + "/seed-" + std::to_string(seed);
      files::create_directories(state.folder);
      state.report.title = about.title;
      Run one(state);
      const auto began = Clock::now();
      example(one);
      const std::chrono::duration<double> taken = Clock::now() - began;
      one.say(fmt::format("done in {:.0f} s", taken.count()));
      figures.push_back(state.figures);
      fovea::inspect::LineChart chart{.title = "Loss while training", .x_label = "update", .y_label = "loss"};
      for (const std::string& what : state.loss_order) chart.curves.push_back({what, state.losses[what]});
      if (!chart.curves.empty()) state.report.charts.push_back(chart);
      write_page(state.folder, seed, state.figures, state.report);
    }
    const std::string table = table_of(options.seeds, figures);
    fmt::print("# {}: {}\n\n{}\n", about.name, about.title, table);
    for (const std::string& page : options.pages) write_into_page(page, marker, table);
    if (options.quick) return 0;
    int missed = 0;
    for (std::size_t s = 0; s < figures.size(); ++s) {
      for (const Figure& f : figures[s]) {
        if (holds(f)) continue;
        ++missed;
        fmt::print(stderr, "{}, seed {}: {} of {} is {}, promised {}\n", about.name, options.seeds[s], f.what,
                   f.of, text_of(f.value, f.unit), promise_of(f));
      }
    }
    return missed ? 1 : 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", about.name, error.what());
    return 1;
  }
}

}  // namespace gallery
