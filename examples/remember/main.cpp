// Remembering pairs: a list tells the values of keys, tells the same keys again with other values, and asks
// for the last ones. Linear attention adds all it is told, and cannot say which value came last. A delta
// write replaces the old value, and softmax attention looks for the last equal key. A hybrid of four layers
// has softmax attention in one of them.
#include <fmt/format.h>

#include <deque>

#include "gallery.h"
#include "reader.h"

namespace {

using namespace fovea;
using namespace remember;
using gallery::Run;

struct Contender {
  std::string name;
  std::vector<nn::Mixer> mixers;
};

std::vector<Contender> contenders() {
  const nn::Mixer linear = linear_attention(), delta = gated_delta(), softmax = softmax_attention();
  return {{"linear attention (baseline)", {linear}},
          {"gated DeltaNet", {delta}},
          {"softmax attention", {softmax}},
          {"4 layers of linear attention (baseline)", {linear, linear, linear, linear}},
          {"hybrid: 3 linear, 1 softmax", {linear, linear, linear, softmax}}};
}

constexpr std::int64_t kMost = 64;  // pairs of a list in training

std::vector<List> lists_of(std::uint64_t seed, std::int64_t first, std::int64_t count, std::int64_t pairs) {
  std::vector<List> lists;
  for (std::int64_t n = 0; n < count; ++n)
    lists.push_back(draw(seed, static_cast<std::uint64_t>(first + n), pairs));
  return lists;
}

void train_reader(Run& run, const std::string& name, Reader& reader) {
  const std::int64_t updates = run.scaled(1500, 4), batch = run.scaled(12, 2);
  train::fit(
      reader.parameters(),
      {.updates = updates,
       .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = updates / 10},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        // 16, 32, 48 and 64 pairs take turns.
        const std::int64_t pairs = kMost / 4 * (1 + update % 4);
        return reader.loss(context, lists_of(run.seed(), update * batch, batch, pairs));
      },
      run.progress(name));
}

// -- evaluation

struct Shares {
  double last = 0.0, first = 0.0;  // of answers: the value that was told last, or the one before
};

// Of lists that no training draws.
Shares evaluate(Run& run, Reader& reader, std::int64_t pairs) {
  constexpr std::int64_t held_out = std::int64_t{1} << 30;
  const std::int64_t count = run.scaled(4096, 64) / pairs;
  const std::vector<List> lists = lists_of(run.seed(), held_out + pairs * 10'000, count, pairs);
  const std::vector<std::vector<std::int32_t>> answers = reader.answers(lists);
  Shares shares;
  for (std::size_t n = 0; n < lists.size(); ++n) {
    for (std::size_t i = 0; i < answers[n].size(); ++i) {
      shares.last += answers[n][i] == lists[n].answers[i] ? 1.0 : 0.0;
      shares.first += answers[n][i] == lists[n].first[i] ? 1.0 : 0.0;
    }
  }
  const auto asked = static_cast<double>(count * pairs);
  return {shares.last / asked, shares.first / asked};
}

void compare(Run& run, const std::vector<Contender>& all, std::deque<Reader>& readers) {
  inspect::LineChart chart{"Right answers by the number of pairs", "pairs", "right, %", {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool baseline = all[i].name.ends_with("(baseline)");
    chart.curves.push_back({all[i].name, {}});
    for (const std::int64_t pairs : {4, 8, 16, 32, 48, 64}) {
      const Shares shares = evaluate(run, readers[i], pairs);
      chart.curves.back().points.push_back({static_cast<double>(pairs), 100.0 * shares.last});
      if (pairs != 16 && pairs != 32 && pairs != kMost) continue;
      gallery::Figure figure{
          .what = fmt::format("right, {} pairs", pairs), .of = all[i].name, .value = shares.last};
      if (pairs == 32 && i == 0) figure.at_most = 0.60;
      if (pairs == 32 && !baseline) figure.at_least = 0.90;
      if (pairs == kMost && i != 1 && !baseline) figure.at_least = 0.97;
      run.figure(figure);
      if (pairs == kMost)
        run.figure({.what = fmt::format("the value told first, {} pairs", pairs),
                    .of = all[i].name,
                    .value = shares.first});
    }
  }
  run.report().charts.push_back(chart);
}

// What a model keeps of a list of 64 pairs, and of one of 640.
void compare_bytes(Run& run, const std::vector<Contender>& all, std::deque<Reader>& readers) {
  for (const std::int64_t tokens : {192, 1920}) {
    for (std::size_t i = 0; i < all.size(); ++i)
      run.figure({.what = fmt::format("kept of {} tokens", tokens),
                  .of = all[i].name,
                  .value = static_cast<double>(readers[i].bytes_kept(tokens)),
                  .unit = gallery::Unit::bytes});
  }
}

// -- the picture

std::string label(const List& list, std::size_t token) {
  const std::int32_t value = list.values[token];
  return fmt::format("{}{}", list.keys[token], value == kQuestion ? "?" : fmt::format("={}", value));
}

// What each question reads of each pair that was told.
inspect::AttentionMap map_of(Reader& reader, const std::string& name, const List& list) {
  const std::size_t length = list.keys.size(), told = length / 3 * 2;
  const Tensor weights = reader.weights(list, 0);
  inspect::AttentionMap map{.name = name, .query_tokens = {}, .key_tokens = {}, .weights = {}};
  for (std::size_t j = 0; j < told; ++j) map.key_tokens.push_back(label(list, j));
  for (std::size_t i = told; i < length; ++i) {
    map.query_tokens.push_back(label(list, i));
    const float* row = weights.data<float>() + i * length;
    float sum = 0.0f;
    for (std::size_t j = 0; j < told; ++j) sum += std::abs(row[j]);
    // Shares of a row's weights: a recurrence's need not sum to 1, and may be negative.
    for (std::size_t j = 0; j < told; ++j) map.weights.push_back(sum > 0.0f ? std::abs(row[j]) / sum : 0.0f);
  }
  return map;
}

void draw_weights(Run& run, const std::vector<Contender>& all, std::deque<Reader>& readers) {
  const List list = draw(run.seed(), std::uint64_t{1} << 31, 8);
  inspect::InspectPage page{.title = "Eight questions, and what was told"};
  for (std::size_t i = 0; i < 3; ++i) page.maps.push_back(map_of(readers[i], all[i].name, list));
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void example(Run& run) {
  run.report().notes = {
      "A list tells the values of keys, and tells the same keys again in another order with other values. "
      "Then each "
      "key is asked for. Recurrences keep a state of one size, softmax attention keeps all keys and values."};
  const std::vector<Contender> all = contenders();
  std::deque<Reader> readers;
  for (const Contender& contender : all) {
    readers.emplace_back(run.seed(), contender.mixers);
    train_reader(run, contender.name, readers.back());
  }
  compare(run, all, readers);
  compare_bytes(run, all, readers);
  draw_weights(run, all, readers);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "remember", .title = "Remembering the last value"}, example);
}
