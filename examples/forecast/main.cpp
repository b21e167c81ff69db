// Forecasting a series. A causal Transformer reads values instead of words and predicts the next value from
// all before it; it predicts 24 steps by reading its own predictions. Its attention finds the values one
// season back. The baselines are the usual seasonal-naive forecasts, and the same network with rows that
// see only themselves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gallery.h"
#include "network.h"
#include "rules.h"
#include "series.h"

namespace {

using namespace forecast;

// -- data

// Streams of the same seed that do not overlap, because a training has fewer than 2^16 updates.
enum class Use : std::uint64_t { training, held_out };
fovea::PhiloxStream stream_of(const gallery::Run& run, Use use, std::int64_t number) {
  return fovea::PhiloxStream(run.seed() << 32 | static_cast<std::uint64_t>(use) << 16 |
                             static_cast<std::uint64_t>(number));
}

constexpr std::int64_t kBatches = 16;  // held out
std::vector<Window> held_out(const gallery::Run& run, const Source& source, std::int64_t batch) {
  fovea::PhiloxStream random = stream_of(run, Use::held_out, batch);
  std::vector<Window> windows(static_cast<std::size_t>(run.scaled(32, 2)));
  for (Window& window : windows) window = source.held_out(random);
  return windows;
}

// -- training

void train(gallery::Run& run, const Source& source, const std::string& name, fovea::nn::ParameterSet& set,
           const Network& network) {
  const fovea::train::FitOptions options{
      .updates = run.scaled(2200, 3), .schedule = fovea::nn::WarmupCosine{.peak = 5e-3}, .seed = run.seed()};
  fovea::train::fit(
      set, options,
      [&](fovea::nn::Context& context, std::int64_t update) {
        fovea::PhiloxStream random = stream_of(run, Use::training, update);
        std::vector<Window> windows(static_cast<std::size_t>(run.scaled(16, 2)));
        for (Window& window : windows) window = source.training(random);
        return network.loss(context, windows);
      },
      run.progress(name));
}

// -- evaluation

// Root of the mean squared error of all held-out forecasts, in deviations of the known values. `forecast`:
// windows to kHorizon values each.
template <class Forecast>
double error_of(const gallery::Run& run, const Source& source, const Forecast& forecast) {
  double squares = 0, count = 0;
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    const std::vector<Window> windows = held_out(run, source, batch);
    const std::vector<std::vector<float>> forecasts = forecast(windows);
    for (std::size_t b = 0; b < windows.size(); ++b) {
      for (std::size_t h = 0; h < kHorizon; ++h, ++count)
        squares += std::pow(double{forecasts[b][h]} - windows[b].values[kContext + h], 2);
    }
  }
  return std::sqrt(squares / count);
}

template <class Rule>
auto for_each(const Rule& rule) {
  return [=](const std::vector<Window>& windows) {
    std::vector<std::vector<float>> forecasts;
    for (const Window& window : windows) forecasts.push_back(rule(window));
    return forecasts;
  };
}

void state_error(gallery::Run& run, const std::string& of, double error) {
  run.figure({.what = "error over 24 steps", .of = of, .value = error, .unit = gallery::Unit::number});
}

// Returns the error of the better seasonal-naive rule.
double evaluate_rules(gallery::Run& run, const Source& source) {
  double better = INFINITY;
  for (const std::int64_t season : source.seasons) {
    const double error =
        error_of(run, source, for_each([&](const Window& w) { return seasonal_naive(w, season); }));
    state_error(run, fmt::format("seasonal naive, lag {} (baseline)", season), error);
    better = std::min(better, error);
  }
  if (source.seasons.size() == 2) {
    const std::int64_t a = source.seasons[0], b = source.seasons[1];
    state_error(run, "both seasons differenced (baseline)",
                error_of(run, source, for_each([&](const Window& w) { return differenced(w, a, b); })));
    state_error(run, "all but the noise (no forecast can do better)",
                error_of(run, source, for_each([](const Window& w) {
                           std::vector<float> known;
                           for (std::size_t t = kContext; t < kWindow; ++t)
                             known.push_back(w.values[t] - w.noise[t]);
                           return known;
                         })));
  }
  return better;
}

// -- what it attends to

constexpr std::int64_t kNear = 3;  // lags that do not count as a season

struct HeadLags {
  std::string name;
  std::vector<double> by_lag;  ///< [kWindow]
};

// The mean weight of every head on every lag, counted from the value that is forecast: lag 1 is the value
// just before it.
std::vector<HeadLags> weights_by_lag(const gallery::Run& run, const Source& source, const Network& network) {
  std::vector<HeadLags> heads;
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    const std::vector<fovea::Tensor> layers = network.weights(held_out(run, source, batch));
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const std::int64_t windows = layers[layer].size(0), count = layers[layer].size(1),
                         rows = layers[layer].size(2);
      const double share = 1.0 / static_cast<double>(windows * kBatches * kHorizon);
      for (std::int64_t i = 0; i < windows * count; ++i) {
        const std::size_t head =
            layer * static_cast<std::size_t>(count) + static_cast<std::size_t>(i % count);
        if (head == heads.size()) {
          heads.push_back(
              {fmt::format("layer {}, head {}", layer + 1, i % count + 1), std::vector<double>(kWindow)});
        }
        for (std::int64_t t = kContext - 1; t < rows; ++t) {
          const float* weight = layers[layer].data<float>() + (i * rows + t) * rows;
          for (std::int64_t j = 0; j <= t; ++j)
            heads[head].by_lag[static_cast<std::size_t>(t + 1 - j)] += share * weight[j];
        }
      }
    }
  }
  return heads;
}

void show_lags(gallery::Run& run, const Source& source, const Network& network) {
  const auto heads = weights_by_lag(run, source, network);
  std::vector<double> mean(kWindow);
  for (const HeadLags& head : heads) {
    for (std::size_t lag = 0; lag < mean.size(); ++lag)
      mean[lag] += head.by_lag[lag] / static_cast<double>(heads.size());
  }
  const auto peak = std::max_element(mean.begin() + kNear + 1, mean.end()) - mean.begin();
  gallery::Figure figure{.what = fmt::format("lag of the largest weight beyond {}", kNear),
                         .of = "attention",
                         .value = static_cast<double>(peak),
                         .unit = gallery::Unit::number};
  // A user's file may have no season.
  if (run.data().empty()) figure.at_least = figure.at_most = static_cast<double>(kLongSeason);
  run.figure(figure);

  constexpr std::int64_t kShown = 49;
  fovea::inspect::AttentionMap map{
      .name = "mean weight by lag", .query_tokens = {}, .key_tokens = {}, .weights = {}};
  for (std::int64_t lag = 1; lag <= kShown; ++lag) map.key_tokens.push_back(std::to_string(lag));
  const auto add = [&](const std::string& name, const std::vector<double>& by_lag) {
    map.query_tokens.push_back(name);
    for (std::size_t lag = 1; lag <= kShown; ++lag) map.weights.push_back(static_cast<float>(by_lag[lag]));
  };
  for (const HeadLags& head : heads) add(head.name, head.by_lag);
  add("all heads", mean);
  const fovea::inspect::InspectPage page{
      .title = "How far back the attention looks, in steps from the value forecast",
      .source = "",
      .output = "",
      .facts = {},
      .maps = {map}};
  run.report().pages.push_back(page);
  run.picture(fovea::pictures::draw_picture(page));
}

// A forecast beside the true values, in the report.
void show_forecast(gallery::Run& run, const Source& source, const Network& network) {
  const std::vector<Window> windows = held_out(run, source, 0);
  const auto forecasts = network.forecast(windows);
  fovea::inspect::Curve truth{.name = "the series", .points = {}}, forecast{.name = "forecast", .points = {}};
  for (std::int64_t t = kContext - 72; t < kWindow; ++t) {
    const auto x = static_cast<double>(t - kContext + 1);
    truth.points.push_back({x, windows.front().values[static_cast<std::size_t>(t)]});
    if (t >= kContext)
      forecast.points.push_back({x, forecasts.front()[static_cast<std::size_t>(t - kContext)]});
  }
  run.report().charts.push_back({.title = "A held-out window",
                                 .x_label = "steps ahead",
                                 .y_label = "value",
                                 .curves = {truth, forecast}});
}

void example(gallery::Run& run) {
  const Source source = run.data().empty() ? generated_series() : series_of_file(run.data());
  run.report().notes = {
      fmt::format("Windows of {}: {} values are known, {} are forecast. Errors are root mean squares in "
                  "standard deviations of the known values.",
                  source.name, kContext, kHorizon)};
  double attention = 0;
  for (const auto sees : {NetworkConfig::Sees::past, NetworkConfig::Sees::itself}) {
    const bool attends = sees == NetworkConfig::Sees::past;
    const std::string name = attends ? "attention" : "rows that see themselves only (baseline)";
    fovea::nn::ParameterSet set(run.seed());
    const Network network(set, {.sees = sees});
    run.say(fmt::format("{}: {} parameters", name, set.count()));
    train(run, source, name, set, network);
    const double error =
        error_of(run, source, [&](const std::vector<Window>& windows) { return network.forecast(windows); });
    run.figure({.what = "error over 24 steps", .of = name, .value = error, .unit = gallery::Unit::number});
    if (!attends) continue;
    attention = error;
    show_lags(run, source, network);
    show_forecast(run, source, network);
  }
  const double better = evaluate_rules(run, source);
  gallery::Figure share{.what = "error, as a share of the better seasonal naive one's",
                        .of = "attention",
                        .value = attention / better,
                        .unit = gallery::Unit::ratio};
  if (run.data().empty()) share.at_most = 0.5;
  run.figure(share);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv,
                      {.name = "forecast",
                       .title = "Forecasting a series",
                       .data = "a CSV file with a header: its last column of numbers is forecast"},
                      example);
}
