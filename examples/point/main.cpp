// Pointing at the input: the output of a pointer network is a row of attention weights, so it can answer
// with any of its inputs, however many there are. It walks round the convex hull of a set of points, and
// sorts numbers. The baseline is the same network with a softmax over fixed positions, as in sequence to
// sequence before.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gallery.h"
#include "network.h"
#include "picture.h"

namespace {

using namespace point;
using Output = NetworkConfig::Output;

// -- data

// Streams of the same seed that do not overlap, because a training has fewer than 2^16 updates.
enum class Use : std::uint64_t { training, test, picture };
fovea::PhiloxStream stream_of(const gallery::Run& run, Task task, Use use, std::int64_t number) {
  return fovea::PhiloxStream(run.seed() << 32 | static_cast<std::uint64_t>(task) << 24 |
                             static_cast<std::uint64_t>(use) << 16 | static_cast<std::uint64_t>(number));
}

constexpr std::int64_t kLeast = 5, kMost = 20;  // points of a set in training
constexpr std::int64_t kInputs = 1024;          // inputs of a batch, whose sets have one size

Sets training_batch(const gallery::Run& run, Task task, std::int64_t update) {
  fovea::PhiloxStream random = stream_of(run, task, Use::training, update);
  const std::int64_t points = kLeast + random.next_below(kMost - kLeast + 1);
  return draw_sets(task, kInputs / points, points, random);
}

// -- the two networks

struct Contestant {
  Output output;
  const char* name;
};
constexpr Contestant kContestants[] = {{Output::pointer, "pointer network"},
                                       {Output::classes, "softmax over positions (baseline)"}};
const char* name_of(Task task) {
  return task == Task::hull ? "hull" : "sorting";
}

// -- training

// The best rates of those tried: 2e-3 and 4e-3, and for the baseline also 1e-3.
double learning_rate(Task task, const Contestant& who) {
  if (who.output == Output::pointer) return 4e-3;
  return task == Task::hull ? 2e-3 : 1e-3;
}

void train(gallery::Run& run, Task task, const Contestant& who, fovea::nn::ParameterSet& set,
           const Network& network) {
  const std::int64_t updates = run.scaled(task == Task::hull ? 2000 : 700, 2);
  const fovea::train::FitOptions options{
      .updates = updates,
      .schedule = fovea::nn::WarmupCosine{.peak = learning_rate(task, who)},
      .seed = run.seed()};
  fovea::train::fit(
      set, options,
      [&](fovea::nn::Context& context, std::int64_t update) {
        return network.loss(context, training_batch(run, task, update));
      },
      run.progress(fmt::format("{}, {}", name_of(task), who.name)));
}

// -- evaluation

double exact_share(const gallery::Run& run, Task task, const Network& network, std::int64_t points) {
  fovea::PhiloxStream random = stream_of(run, task, Use::test, points);
  const std::int64_t batches = run.scaled(12, 1), size = run.scaled(250, 2);
  std::int64_t exact = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const Sets sets = draw_sets(task, size, points, random);
    const auto answers = network.answer(sets);
    for (std::int64_t b = 0; b < size; ++b)
      exact += is_exact(task, sets, b, answers[static_cast<std::size_t>(b)]);
  }
  return static_cast<double>(exact) / static_cast<double>(batches * size);
}

void evaluate(gallery::Run& run, Task task, const Contestant& who, const Network& network) {
  fovea::inspect::Curve curve{.name = who.name, .points = {}};
  for (const std::int64_t points : {5, 10, 15, 20, 30, 50}) {
    gallery::Figure figure{.what = fmt::format("{} of {}, exact", name_of(task), points),
                           .of = who.name,
                           .value = exact_share(run, task, network, points)};
    if (task == Task::hull && who.output == Output::pointer) {
      if (points == 5) figure.at_least = 0.92;
      if (points == 10) figure.at_least = 0.87;
    }
    run.figure(figure);
    curve.points.push_back({static_cast<double>(points), 100 * figure.value});
  }
  auto& charts = run.report().charts;
  const std::string title = fmt::format("{}: exact answers by the size of the set", name_of(task));
  const auto same = [&](const fovea::inspect::LineChart& chart) { return chart.title == title; };
  auto chart = std::find_if(charts.begin(), charts.end(), same);
  if (chart == charts.end()) chart = charts.insert(chart, {title, "inputs", "exact, %", {}});
  chart->curves.push_back(std::move(curve));
}

// -- picture

// The first drawn set that makes a readable picture, chosen without looking at the network's answer: seven
// corners, and no two points that would cover each other.
void draw_hull(gallery::Run& run, const Network& network) {
  fovea::PhiloxStream random = stream_of(run, Task::hull, Use::picture, 0);
  const auto legible = [](const Sets& set) {
    const std::vector<Place>& places = set.places.front();
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (std::hypot(places[i].x - places[j].x, places[i].y - places[j].y) < 0.12) return false;
      }
    }
    return set.steps == 8;
  };
  Sets set = draw_sets(Task::hull, 1, 12, random);
  while (!legible(set)) set = draw_sets(Task::hull, 1, 12, random);
  run.picture(draw_steps(network, set));
}

void show_sorting(gallery::Run& run, const Network& network) {
  fovea::PhiloxStream random = stream_of(run, Task::sorting, Use::picture, 0);
  const Sets set = draw_sets(Task::sorting, 1, 10, random);
  std::vector<fovea::Tensor> weights;
  network.answer(set, &weights);
  fovea::inspect::AttentionMap map{
      .name = "the pointer's weights", .query_tokens = {}, .key_tokens = {"end"}, .weights = {}};
  for (const Place& number : set.places.front()) map.key_tokens.push_back(fmt::format("{:.3f}", number.x));
  for (const fovea::Tensor& step : weights) {
    map.query_tokens.push_back(fmt::format("step {}", map.query_tokens.size() + 1));
    map.weights.insert(map.weights.end(), step.data<float>(), step.data<float>() + step.count());
  }
  run.report().pages.push_back({.title = "Ten numbers, sorted", .maps = {map}});
}

void example(gallery::Run& run) {
  run.report().notes = {
      fmt::format(
          "The answer is a list of the inputs. Both networks were trained on the same sets of {} to {} "
          "inputs; larger sets show what each has learned beyond them.",
          kLeast, kMost),
      "A polygon counts as exact where it has the right corners in the right cyclic order."};
  for (const Task task : {Task::hull, Task::sorting}) {
    for (const Contestant& who : kContestants) {
      fovea::nn::ParameterSet set(run.seed());
      const Network network(set, {.output = who.output});
      run.say(fmt::format("{}, {}: {} parameters", name_of(task), who.name, set.count()));
      train(run, task, who, set, network);
      evaluate(run, task, who, network);
      if (who.output != Output::pointer) continue;
      task == Task::hull ? draw_hull(run, network) : show_sorting(run, network);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "point", .title = "Pointing at the input", .data = ""}, example);
}
