// What all examples of the gallery share: the command line, progress output, figures and the page of results.
//
//   int main(int argc, char** argv) {
//     return gallery::run(argc, argv, {.name = "point", .title = "Pointing at the input"}, example);
//   }
//
// where `void example(gallery::Run& run)` is called once for each seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fovea/inspect/report.h"
#include "fovea/pictures/maps.h"
#include "fovea/train/fit.h"

namespace gallery {

struct About {
  std::string name;       ///< the folder under examples/
  std::string title;      ///< of the page
  std::string data = {};  ///< what --data expects; empty: the example has no --data
};

/// How a figure is written, and whether a run repeats it to the digit.
enum class Unit { percent, number, count, points, seconds, per_second, ratio, bytes, bits };

/// One number of the result. `what` must be the same for every seed: the table has one row for each figure
/// and one column for each seed.
struct Figure {
  std::string what;    ///< "exact, 10 points"
  std::string of;      ///< whose: "pointer network", "without attention (baseline)"
  double value = 0.0;  ///< percent: a share in [0, 1]
  Unit unit = Unit::percent;
  std::optional<double> at_least = {}, at_most = {};  ///< the promise of the page, in the same unit
};

class Run {
 public:
  std::uint64_t seed() const;
  /// True for the seed that the page's picture shows.
  bool is_first_seed() const;
  /// A run for tests: everything happens within seconds, and no figure is held to its promise.
  bool quick() const;
  /// `full`, or `little` in a quick run: updates, held-out examples, lengths.
  std::int64_t scaled(std::int64_t full, std::int64_t little) const;
  /// --data, where the example takes it; empty: the generated default.
  const std::string& data() const;
  /// --threads. They are set when the example begins.
  int threads() const;
  /// The folder of this seed's files; exists.
  const std::string& folder() const;

  /// A line on standard error, "point, seed 1: ...".
  void say(const std::string& line);
  /// For train::fit: says now and then how far the training of `what` is, and keeps its loss for the page.
  std::function<void(const fovea::train::FitStep&)> progress(const std::string& what);

  void figure(const Figure& figure);
  /// The page's picture, of the first seed: picture-light.png and picture-dark.png. picture.json keeps the
  /// drawing for --redraw.
  void picture(const fovea::inspect::Drawing& picture);
  /// The same where it shows all seeds so far: a later seed's replaces it.
  void picture_of_all(const fovea::inspect::Drawing& picture);
  /// What the page (report.html) shows besides figures, losses and the picture.
  fovea::inspect::ReportData& report();

 private:
  friend int run(int, char**, const About&, const std::function<void(Run&)>&);
  struct State;
  explicit Run(State& state) : state_(&state) {}
  State* state_;
};

class Stopwatch {
 public:
  /// Since it was made.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// The same in seconds that the process used: other work of the machine does not count. With --threads 1 that
/// is as long as a part of an example takes on a machine of its own.
class ProcessorStopwatch {
 public:
  double seconds() const { return static_cast<double>(std::clock() - began_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t began_ = std::clock();
};

/// Options: --seeds 1,2,3 (default 1), --quick, --output FOLDER (default gallery/NAME), --data PATH,
/// --threads N, --page FILE. --threads defaults to 1: small models gain little from a second core, and two
/// examples run at the same time. --page writes the table of figures into a page, between the markers `<!--
/// figures NAME -->` and `<!-- end NAME -->`. With --data the markers are `<!-- figures NAME data -->` and
/// `<!-- end NAME data -->`. --redraw FOLDER only draws FOLDER/picture.json again. Prints the table on
/// standard output. Returns 0; 1 if a figure missed its promise or something failed; 2 for wrong options.
int run(int argc, char** argv, const About& about, const std::function<void(Run&)>& example);

}  // namespace gallery
