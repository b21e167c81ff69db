// Hard attention beside soft attention. A digit stands somewhere on a cluttered canvas. The hard model sees
// the canvas blurred, and then four small windows of it: a quarter of the canvas's numbers in all. After
// each window it decides where the next one goes. This is a random draw, learned by REINFORCE (Mnih et al.
// 2014, arXiv 1406.6247). The soft model reads every window and takes a weighted mean, which has a
// gradient. The baseline is the hard model with windows drawn uniformly; the difference is the gain by
// deciding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canvas.h"
#include "fovea/pictures/scene.h"
#include "gallery.h"
#include "models.h"

namespace {

using namespace fovea;
using namespace glimpse;
using nn::Context;
using nn::Var;

// -- data

constexpr int kPieces = 8;
constexpr std::int64_t kBatch = 128, kSoftBatch = 64;

std::uint64_t seed_of(const gallery::Run& run, int part, std::int64_t index) {
  return (run.seed() << 40) + (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(index);
}

// Canvases of one update. The first have no clutter: a model must know digits before it can learn to
// recognise clutter.
Canvases practice(const gallery::Run& run, const Digits& digits, std::int64_t update, std::int64_t updates,
                  std::int64_t count) {
  const double done = static_cast<double>(update) / static_cast<double>(updates);
  const double clutter = std::clamp((done - 0.15) / 0.35, 0.0, 1.0);
  return draw_canvases(digits.train, count, static_cast<int>(std::lround(kPieces * clutter)),
                       seed_of(run, 1, update));
}

// -- models: models.h

// -- training

// P(right class) after each glimpse: [glimpse][canvas].
std::vector<std::vector<float>> rewards_of(const Looks& looks, const Canvases& canvases) {
  std::vector<std::vector<float>> rewards;
  for (const Var& logits : looks.logits) {
    Tensor log_p = logits.value().clone();
    autograd::log_softmax_rows(log_p);
    std::vector<float>& reward = rewards.emplace_back();
    for (std::int64_t b = 0; b < canvases.size; ++b)
      reward.push_back(std::exp(log_p.view().at<float>({b, canvases.labels[static_cast<std::size_t>(b)]})));
  }
  return rewards;
}

// REINFORCE with a learned baseline (Williams 1992). A place becomes likelier if the reward to come is
// larger than expected. The reward to come is the sum of the rewards from this glimpse on, over the number
// of all glimpses.
void add_policy_losses(const Looks& looks, const Canvases& canvases, std::vector<Var>& losses) {
  const auto size = static_cast<std::size_t>(canvases.size);
  const float share = 1.0f / static_cast<float>(size);
  const std::vector<std::vector<float>> rewards = rewards_of(looks, canvases);
  std::vector<Tensor> to_come(glimpses);
  std::vector<std::vector<float>> advantages(glimpses, std::vector<float>(size));
  std::vector<float> sum(size, 0.0f);
  double squares = 0;
  for (std::size_t glimpse = glimpses; glimpse-- > 0;) {
    for (std::size_t b = 0; b < size; ++b) {
      sum[b] += rewards[glimpse][b] / glimpses;
      advantages[glimpse][b] = sum[b] - looks.expected[glimpse].value().data<float>()[b];
      squares += static_cast<double>(advantages[glimpse][b]) * advantages[glimpse][b];
    }
    to_come[glimpse] = Tensor::from<float>(sum, {canvases.size, 1});
  }
  // Advantages are divided by their deviation, so that steps have the same size from the first update to
  // the last. The divisor is at least 0.1: smaller deviations are noise of a model that knows no digit yet.
  const double deviation = std::max(0.1, std::sqrt(squares / static_cast<double>(glimpses * size)));
  for (std::size_t glimpse = 0; glimpse < glimpses; ++glimpse) {
    std::vector<std::int32_t> chosen;
    for (const std::vector<std::int32_t>& path : looks.places) chosen.push_back(path[glimpse]);
    for (float& advantage : advantages[glimpse]) advantage *= share / static_cast<float>(deviation);
    losses.push_back(
        autograd::negative_log_likelihood(looks.weights[glimpse], chosen, {advantages[glimpse]}));
    losses.push_back(
        autograd::squared_error(looks.expected[glimpse], to_come[glimpse], {.scale = share / glimpses}));
  }
}

void fit_hard(gallery::Run& run, HardModel& model, const Digits& digits, Choice choice) {
  const std::int64_t updates = run.scaled(4000, 6);
  train::fit(
      model.parameters, {.updates = updates, .schedule = nn::WarmupCosine{.peak = 5e-3}, .seed = run.seed()},
      [&](Context& context, std::int64_t update) {
        const Canvases canvases = practice(run, digits, update, updates, kBatch);
        const Looks looks = model(context, canvases, choice, seed_of(run, 2, update * glimpses));
        const autograd::Reduction mean{.scale = 1.0f / (kBatch * glimpses)};
        std::vector<Var> losses;
        for (const Var& logits : looks.logits)
          losses.push_back(autograd::cross_entropy(logits, canvases.labels, mean));
        if (choice == Choice::drawn) add_policy_losses(looks, canvases, losses);
        return autograd::sum(autograd::concat(losses, 0));
      },
      run.progress(choice == Choice::blind ? "blind glimpses" : "hard attention"));
}

void fit_soft(gallery::Run& run, SoftModel& model, const Digits& digits) {
  const std::int64_t updates = run.scaled(3000, 6);
  train::fit(
      model.parameters, {.updates = updates, .schedule = nn::WarmupCosine{.peak = 6e-3}, .seed = run.seed()},
      [&](Context& context, std::int64_t update) {
        const Canvases canvases = practice(run, digits, update, updates, kSoftBatch);
        return autograd::cross_entropy(model(context, canvases), canvases.labels,
                                       {.scale = 1.0f / kSoftBatch});
      },
      run.progress("soft attention"));
}

// -- evaluation

struct HardResult {
  std::vector<double> right = std::vector<double>(glimpses, 0.0);  ///< after each glimpse
  double found = 0;  ///< canvases with a window that held the digit but for a row and a column at most
};

bool holds(Corner window, Corner digit) {
  const int down = digit.row - window.row, right = digit.column - window.column;
  return down >= -1 && right >= -1 && down <= window_side - digit_side + 1 &&
         right <= window_side - digit_side + 1;
}

std::int64_t count_right(const Var& logits, const Canvases& canvases) {
  autograd::CrossEntropyStats stats;
  (void)autograd::cross_entropy(logits, canvases.labels, {}, &stats);
  return stats.correct;
}

HardResult evaluate(const HardModel& model, const Canvases& canvases, Choice choice, std::uint64_t seed) {
  HardResult result;
  const double one = 1.0 / static_cast<double>(canvases.size);
  for (std::int64_t first = 0; first < canvases.size; first += kBatch) {
    const Canvases part = part_of(canvases, first, kBatch);
    Context inference;
    const Looks looks = model(inference, part, choice, seed + static_cast<std::uint64_t>(first) * glimpses);
    for (std::size_t glimpse = 0; glimpse < glimpses; ++glimpse)
      result.right[glimpse] += one * static_cast<double>(count_right(looks.logits[glimpse], part));
    for (std::size_t b = 0; b < looks.places.size(); ++b) {
      const auto held = [&](std::int32_t place) { return holds(corner_of(place), part.digits[b]); };
      result.found +=
          one * static_cast<double>(std::any_of(looks.places[b].begin(), looks.places[b].end(), held));
    }
  }
  return result;
}

double evaluate(const SoftModel& model, const Canvases& canvases) {
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < canvases.size; first += kBatch) {
    const Canvases part = part_of(canvases, first, kBatch);
    Context inference;
    right += count_right(model(inference, part), part);
  }
  return static_cast<double>(right) / static_cast<double>(canvases.size);
}

// -- picture

// The weight of each pixel of canvas `b`: each window's weight, the mean of the queries, spread evenly over
// its pixels.
std::vector<float> weight_of_pixels(const Tensor& weights, std::int64_t b) {
  std::vector<float> heat(canvas_pixels, 0.0f);
  for (std::int64_t query = 0; query < SoftModel::queries; ++query) {
    for (std::int32_t place = 0; place < places; ++place) {
      const Corner corner = corner_of(place);
      for (int pixel = 0; pixel < window_pixels; ++pixel) {
        const int row = corner.row + pixel / window_side, column = corner.column + pixel % window_side;
        heat[static_cast<std::size_t>(row * canvas_side + column)] +=
            weights.view().at<float>({b, 0, query, place}) / (SoftModel::queries * window_pixels);
      }
    }
  }
  return heat;
}

// The first canvases with the results of both models: the windows of the hard model in their order, and the
// weights of the soft model spread over the pixels of each window.
inspect::Drawing draw(const HardModel& hard, const SoftModel& soft, const Canvases& canvases) {
  constexpr inspect::Rgb kColours[] = {{230, 159, 0}, {86, 180, 233}, {0, 158, 115}, {240, 228, 66}};
  Context inference;
  Tensor weights;
  const Looks looks = hard(inference, canvases, Choice::best, 0);
  const std::vector<std::int32_t> soft_says =
      autograd::argmax_rows(soft(inference, canvases, &weights).value());
  std::vector<std::vector<std::int32_t>> hard_says;
  for (const Var& logits : looks.logits) hard_says.push_back(autograd::argmax_rows(logits.value()));
  std::vector<pictures::Scene> scenes;
  for (const Choice choice : {Choice::best, Choice::blind}) {
    for (std::int64_t b = 0; b < canvases.size; ++b) {
      const auto at = static_cast<std::size_t>(b);
      pictures::Scene scene;
      scene.width = scene.height = canvas_side;
      scene.pixels.assign(canvases.pixels.begin() + b * canvas_pixels,
                          canvases.pixels.begin() + (b + 1) * canvas_pixels);
      const std::string is = fmt::format("; is {}", canvases.labels[at]);
      if (choice == Choice::best) {
        scene.caption = "hard: ";
        for (std::size_t glimpse = 0; glimpse < glimpses; ++glimpse) {
          const Corner corner = corner_of(looks.places[at][glimpse]);
          scene.boxes.push_back({.x = static_cast<double>(corner.column),
                                 .y = static_cast<double>(corner.row),
                                 .width = window_side,
                                 .height = window_side,
                                 .label = std::to_string(glimpse + 1),
                                 .colour = kColours[glimpse]});
          scene.caption += fmt::format("{}{}", glimpse ? ", " : "", hard_says[glimpse][at]);
        }
        scene.caption += is;
      } else {
        scene.caption = fmt::format("soft: {}{}", soft_says[at], is);
        scene.rows = scene.columns = canvas_side;
        scene.weights = weight_of_pixels(weights, b);
      }
      scenes.push_back(scene);
    }
  }
  return pictures::draw_scenes(scenes, {.title = "Where to look: four glimpses, or everything weighed",
                                        .columns = static_cast<int>(canvases.size),
                                        .zoom = 3.5});
}

// -- main

constexpr const char *kHard = "hard attention", *kSoft = "soft attention",
                     *kBlind = "blind glimpses (baseline)";

void state_figures(gallery::Run& run, const HardResult& hard, const HardResult& blind, double soft) {
  const double read = static_cast<double>(overview_values + glimpses * window_pixels) / canvas_pixels;
  run.figure({.what = "right", .of = kHard, .value = hard.right.back(), .at_least = 0.85});
  run.figure({.what = "right", .of = kSoft, .value = soft, .at_least = 0.90});
  run.figure({.what = "right", .of = kBlind, .value = blind.right.back()});
  run.figure({.what = "right, more than blind glimpses",
              .of = kHard,
              .value = hard.right.back() - blind.right.back(),
              .unit = gallery::Unit::points,
              .at_least = 0.15});
  run.figure({.what = "numbers read, of the canvas's pixels", .of = kHard, .value = read, .at_most = 0.25});
  for (std::size_t glimpse = 0; glimpse + 1 < glimpses; ++glimpse) {
    run.figure({.what = fmt::format("right after glimpse {}", glimpse + 1),
                .of = kHard,
                .value = hard.right[glimpse]});
  }
}

void write_report(gallery::Run& run, const HardResult& hard, const HardResult& blind) {
  run.report().notes = {
      "A digit stands somewhere among clutter. Hard attention reads a blurred canvas and four "
      "windows, which it chooses one after the other; soft attention reads all windows and weighs "
      "them.",
      "The baseline has the same network, data and updates, and looks at windows drawn blindly."};
  inspect::LineChart chart{
      .title = "Right after each glimpse", .x_label = "glimpses", .y_label = "share right", .curves = {}};
  for (const auto& [name, result] : {std::pair(kHard, hard), std::pair(kBlind, blind)}) {
    inspect::Curve curve{.name = name, .points = {}};
    for (std::size_t glimpse = 0; glimpse < glimpses; ++glimpse)
      curve.points.push_back({static_cast<double>(glimpse + 1), result.right[glimpse]});
    chart.curves.push_back(curve);
  }
  run.report().charts.push_back(chart);
}

void example(gallery::Run& run) {
  const Digits digits = run.data().empty() ? draw_digits() : read_digits(run.data());
  const std::int64_t count = run.scaled(2000, 32);
  const Canvases validation = draw_canvases(digits.validation, count, kPieces, seed_of(run, 3, 0));
  const Canvases held_out = draw_canvases(digits.held_out, count, kPieces, seed_of(run, 4, 0));
  HardModel hard(run.seed()), blind(run.seed());
  SoftModel soft(run.seed());
  const HardResult untrained = evaluate(hard, held_out, Choice::drawn, seed_of(run, 5, 0));
  fit_hard(run, hard, digits, Choice::drawn);
  fit_hard(run, blind, digits, Choice::blind);
  fit_soft(run, soft, digits);

  run.say(fmt::format("on the digits kept for choosing settings: hard {:.3f}, soft {:.3f}",
                      evaluate(hard, validation, Choice::best, 0).right.back(), evaluate(soft, validation)));
  const HardResult of_hard = evaluate(hard, held_out, Choice::best, 0);
  const HardResult of_blind = evaluate(blind, held_out, Choice::blind, seed_of(run, 5, 0));
  state_figures(run, of_hard, of_blind, evaluate(soft, held_out));
  run.figure({.what = "digit inside a window", .of = kHard, .value = of_hard.found});
  run.figure({.what = "digit inside a window",
              .of = fmt::format("{} before training", kHard),
              .value = untrained.found});
  run.figure({.what = "digit inside a window", .of = kBlind, .value = of_blind.found});
  write_report(run, of_hard, of_blind);
  run.picture(draw(hard, soft, part_of(held_out, 0, 4)));
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(
      argc, argv,
      {.name = "glimpse",
       .title = "Four glimpses: hard attention beside soft",
       .data = "scikit-learn's digits.csv, as setup.sh fetches it; without, digits are drawn"},
      example);
}
