// Three tasks of memory. In the first a list tells the values of keys, tells the same keys again with other
// values, and asks for the last ones. In the second symbols stand at random places among noise, and are to be
// written out in order. In the third keys and values stand among thousands of tokens of noise. Recurrences,
// which keep a state of one size, softmax attention, which keeps every token, and hybrids of both learn them.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>

#include "copying.h"
#include "gallery.h"
#include "reader.h"
#include "recall.h"

namespace {

using namespace fovea;
using namespace remember;
using gallery::Run;
using gallery::Unit;

struct Contender {
  std::string name;
  std::vector<nn::Mixer> mixers;
  struct Promise {
    std::int64_t size;
    std::optional<double> at_least = {}, at_most = {};
  };
  std::vector<Promise> promises = {};  ///< of right answers
};

struct Task {
  Vocabulary vocabulary;
  /// Exercise `number` of a seed.
  std::function<Exercise(std::uint64_t seed, std::uint64_t number, std::int64_t size)> draw;
  std::string figure;                  ///< its name, with {} for the size
  std::string title, sizes;            ///< of the chart, and of its axis
  std::vector<std::int64_t> learned;   ///< sizes that take turns in training
  std::vector<std::int64_t> batches;   ///< exercises of an update, one number for each of them
  std::vector<std::int64_t> tested;    ///< sizes of the chart
  std::vector<std::int64_t> reported;  ///< those of them that become figures
  std::vector<std::int64_t> kept;      ///< numbers of tokens whose bytes become figures
  std::vector<Contender> contenders;
  std::int64_t updates = 1500;
  /// Training begins with the first two sizes, and the others join them one by one before its middle.
  bool from_short_to_long = false;
  std::string curve = {};  ///< behind the names of its curves of losses
};

const std::string kFull = "4 layers of softmax attention", kHybrid = "hybrid: 3 linear, 1 softmax";

// Its sizes are pairs.
Task recall() {
  const nn::Mixer linear = linear_attention(), delta = gated_delta(), softmax = softmax_attention();
  return {
      .vocabulary = vocabulary_of_lists(),
      .draw = draw_list,
      .figure = "right, {} pairs",
      .title = "The last value of each key: right answers by the number of pairs",
      .sizes = "pairs",
      .learned = {16, 32, 48, 64},
      .batches = {12, 12, 12, 12},
      .tested = {4, 8, 16, 32, 48, 64},
      .reported = {16, 32, 64},
      .kept = {192, 1920, 7680},
      .contenders = {
          {"linear attention (baseline)", {linear}, {{.size = 32, .at_most = 0.60}}},
          {"gated DeltaNet", {delta}, {{.size = 32, .at_least = 0.90}}},
          {"softmax attention", {softmax}, {{.size = 32, .at_least = 0.90}, {.size = 64, .at_least = 0.97}}},
          {"4 layers of linear attention (baseline)", {linear, linear, linear, linear}},
          {kFull, {softmax, softmax, softmax, softmax}, {{.size = 64, .at_least = 0.97}}},
          {kHybrid,
           {linear, linear, linear, softmax},
           {{.size = 32, .at_least = 0.90}, {.size = 64, .at_least = 0.97}}}}};
}

// Its sizes are tokens of noise. All models but one have two layers, as those of the paper.
Task copying() {
  const nn::Mixer linear = linear_attention(), constant = retention(), delta = gated_delta(),
                  mamba = mamba2(), softmax = softmax_attention(), rotary = rotary_attention();
  return {.vocabulary = vocabulary_of_copying(),
          .draw = draw_copying,
          .figure = "copied, {} tokens of noise",
          .title = "Selective copying: right symbols by the number of tokens of noise",
          .sizes = "tokens of noise",
          .learned = {24, 56, 120},
          .batches = {12, 12, 12},
          .tested = {24, 56, 120, 248, 504},
          .reported = {24, 120, 504},
          .kept = {136, 520},
          .contenders = {{"linear attention, 2 layers", {linear, linear}, {{.size = 120, .at_most = 0.45}}},
                         {"retention, 2 layers", {constant, constant}},
                         {"gated DeltaNet, 2 layers", {delta, delta}, {{.size = 120, .at_least = 0.80}}},
                         {"Mamba-2, 2 layers", {mamba, mamba}},
                         {"softmax attention, 2 layers", {softmax, softmax}},
                         {"softmax attention, rotary, 3 layers",
                          {rotary, rotary, rotary},
                          {{.size = 120, .at_least = 0.75}}},
                         {"hybrid: 1 Mamba-2, 1 softmax", {mamba, softmax}}}};
}

const std::string kHybridLong = "hybrid: 1 softmax, 3 linear";

// Its sizes are tokens. The hybrid's softmax attention is in its first layer, where it reads keys and values
// as they are: it learns in fewer updates than behind recurrences. Longer sequences join the training when
// shorter ones have been read for a while, because they cost more and teach no more at first.
Task long_recall() {
  const nn::Mixer linear = linear_attention(), softmax = plain_attention();
  return {
      .vocabulary = vocabulary_of_long_lists(),
      .draw = draw_long_list,
      .figure = "right, 64 pairs among {} tokens",
      .title = "The value of each of 64 keys among noise: right answers by the number of tokens",
      .sizes = "tokens",
      .learned = {64, 128, 256, 1024, 4096},
      .batches = {12, 12, 12, 4, 1},
      .tested = {},
      .reported = {256, 1024, 4096},
      .kept = {},
      .contenders = {{kFull, {softmax, softmax, softmax, softmax}},
                     {"4 layers of linear attention (baseline)", {linear, linear, linear, linear}},
                     {kHybridLong, {softmax, linear, linear, linear}, {{.size = 4096, .at_least = 0.97}}}},
      .updates = 800,
      .from_short_to_long = true,
      .curve = ", among noise"};
}

std::vector<Exercise> exercises_of(const Task& task, std::uint64_t seed, std::int64_t first,
                                   std::int64_t count, std::int64_t size) {
  std::vector<Exercise> exercises;
  for (std::int64_t n = 0; n < count; ++n)
    exercises.push_back(task.draw(seed, static_cast<std::uint64_t>(first + n), size));
  return exercises;
}

// The size of an update, as an index of task.learned.
std::size_t turn_of(const Task& task, std::int64_t update, std::int64_t updates) {
  const std::int64_t sizes = std::ssize(task.learned);
  const std::int64_t among =
      task.from_short_to_long ? std::min(sizes, 2 + 2 * sizes * update / updates) : sizes;
  return static_cast<std::size_t>(update % among);
}

void train_reader(Run& run, const Task& task, const std::string& name, Reader& reader) {
  const std::int64_t updates = run.scaled(task.updates, 4), most = run.scaled(12, 2);
  train::fit(
      reader.parameters(),
      {.updates = updates,
       .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = updates / 10},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const std::size_t turn = turn_of(task, update, updates);
        const std::int64_t batch = std::min(most, task.batches[turn]);
        return reader.loss(context, exercises_of(task, run.seed(), update * most, batch, task.learned[turn]));
      },
      run.progress(name));
}

// -- evaluation

struct Shares {
  double right = 0.0, outdated = 0.0;  // of answers
};

// Of exercises that no training draws.
Shares evaluate(Run& run, const Task& task, Reader& reader, std::int64_t size) {
  constexpr std::int64_t held_out = std::int64_t{1} << 30, batch = 64;
  const std::int64_t each = std::ssize(task.draw(run.seed(), 0, size).answers);
  const std::int64_t count = run.scaled(4096, 64) / each;
  Shares shares;
  for (std::int64_t done = 0; done < count; done += batch) {
    const std::vector<Exercise> exercises =
        exercises_of(task, run.seed(), held_out + size * 10'000 + done, std::min(batch, count - done), size);
    const std::vector<std::vector<std::int32_t>> answers = reader.answers(exercises);
    for (std::size_t n = 0; n < exercises.size(); ++n) {
      const auto& [ids, right, outdated] = exercises[n];
      for (std::size_t i = 0; i < right.size(); ++i) {
        shares.right += answers[n][i] == right[i] ? 1.0 : 0.0;
        if (!outdated.empty()) shares.outdated += answers[n][i] == outdated[i] ? 1.0 : 0.0;
      }
    }
  }
  const auto asked = static_cast<double>(count * each);
  return {shares.right / asked, shares.outdated / asked};
}

// The share of right answers of a contender, with its promise.
void report_right(Run& run, const Task& task, const Contender& contender, std::int64_t size, double share) {
  gallery::Figure figure{
      .what = fmt::format(fmt::runtime(task.figure), size), .of = contender.name, .value = share};
  for (const Contender::Promise& promise : contender.promises) {
    if (promise.size != size) continue;
    figure.at_least = promise.at_least;
    figure.at_most = promise.at_most;
  }
  run.figure(figure);
}

void compare(Run& run, const Task& task, std::deque<Reader>& readers) {
  inspect::LineChart chart{task.title, task.sizes, "right, %", {}};
  const auto among = [](const std::vector<std::int64_t>& sizes, std::int64_t size) {
    return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
  };
  for (std::size_t i = 0; i < readers.size(); ++i) {
    const Contender& contender = task.contenders[i];
    chart.curves.push_back({contender.name, {}});
    for (const std::int64_t size : task.tested) {
      const Shares shares = evaluate(run, task, readers[i], size);
      chart.curves.back().points.push_back({static_cast<double>(size), 100.0 * shares.right});
      if (among(task.reported, size)) report_right(run, task, contender, size, shares.right);
    }
  }
  run.report().charts.push_back(chart);
}

// The answers that were right once. Those whose two values are the same, one in 32 by chance, are right now
// too.
void compare_outdated(Run& run, const Task& task, std::deque<Reader>& readers) {
  for (std::size_t i = 0; i < readers.size(); ++i)
    run.figure({.what = fmt::format("the value told first, {} pairs", task.learned.back()),
                .of = task.contenders[i].name,
                .value = evaluate(run, task, readers[i], task.learned.back()).outdated});
}

void compare_bytes(Run& run, const Task& task, std::deque<Reader>& readers) {
  for (const std::int64_t tokens : task.kept) {
    for (std::size_t i = 0; i < readers.size(); ++i)
      run.figure({.what = fmt::format("kept of {} tokens", tokens),
                  .of = task.contenders[i].name,
                  .value = static_cast<double>(readers[i].bytes_kept(tokens)),
                  .unit = Unit::bytes});
  }
}

// The hybrid beside softmax attention in all four layers: its right answers, and its bytes.
void compare_hybrid(Run& run, const Task& task, std::deque<Reader>& readers) {
  const auto reader = [&](const std::string& name) -> Reader& {
    std::size_t i = 0;
    while (task.contenders[i].name != name) ++i;
    return readers[i];
  };
  Reader &hybrid = reader(kHybrid), &full = reader(kFull);
  const std::int64_t pairs = task.learned.back(), tokens = task.kept.back();
  // Both answer nearly everything, so a difference of half a point is that of a few lists.
  run.figure({.what = fmt::format("more than full attention, {} pairs", pairs),
              .of = kHybrid,
              .value = evaluate(run, task, hybrid, pairs).right - evaluate(run, task, full, pairs).right,
              .unit = Unit::points,
              .at_least = -0.005});
  run.figure(
      {.what = fmt::format("kept, as a share of full attention's, {} tokens", tokens),
       .of = kHybrid,
       .value = static_cast<double>(hybrid.bytes_kept(tokens)) / static_cast<double>(full.bytes_kept(tokens)),
       .at_most = 0.26});
}

// Recall over long sequences as a text is written: what is told is read at once, and then each question
// alone. Bytes and times are those of the caches that give the answers.
void compare_long(Run& run, const Task& task, std::deque<Reader>& readers) {
  constexpr std::uint64_t held_out = std::uint64_t{1} << 30;
  struct Measured {
    double right = 0.0, bytes = 0.0, seconds = 0.0;
  };
  const std::int64_t lists = run.scaled(32, 1), longest = task.reported.back();
  std::vector<Measured> behind_most;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    Measured measured;
    for (const std::int64_t tokens : task.reported) {
      std::int64_t right = 0, asked = 0;
      std::vector<double> seconds;
      for (std::int64_t n = 0; n < lists; ++n) {
        const Exercise list =
            task.draw(run.seed(), held_out + static_cast<std::uint64_t>(tokens * 10'000 + n), tokens);
        const Reader::Decoded decoded = readers[i].decode(list);
        for (std::size_t k = 0; k < list.answers.size(); ++k)
          right += decoded.answers[k] == list.answers[k] ? 1 : 0;
        asked += std::ssize(list.answers);
        seconds.push_back(decoded.seconds_a_question);
        measured.bytes = static_cast<double>(decoded.bytes);
      }
      std::nth_element(seconds.begin(), seconds.begin() + lists / 2, seconds.end());
      measured.seconds = seconds[static_cast<std::size_t>(lists / 2)];
      measured.right = static_cast<double>(right) / static_cast<double>(asked);
      report_right(run, task, task.contenders[i], tokens, measured.right);
    }
    behind_most.push_back(measured);
  }
  for (std::size_t i = 0; i < readers.size(); ++i)
    run.figure({.what = fmt::format("kept of the {} tokens", longest),
                .of = task.contenders[i].name,
                .value = behind_most[i].bytes,
                .unit = Unit::bytes});
  for (std::size_t i = 0; i < readers.size(); ++i)
    run.figure({.what = fmt::format("a question behind {} tokens", longest),
                .of = task.contenders[i].name,
                .value = behind_most[i].seconds,
                .unit = Unit::seconds});
  // The first is full attention, the last the hybrid.
  const Measured &full = behind_most.front(), &hybrid = behind_most.back();
  run.figure({.what = fmt::format("more than full attention, {} tokens", longest),
              .of = kHybridLong,
              .value = hybrid.right - full.right,
              .unit = Unit::points,
              .at_least = -0.005});
  run.figure({.what = fmt::format("kept, as a share of full attention's, {} tokens", longest),
              .of = kHybridLong,
              .value = hybrid.bytes / full.bytes,
              .at_most = 0.27});
}

// -- the picture

std::string label_of_pair(const Exercise& list, std::size_t token) {
  const std::int32_t value = list.ids[1][token];
  return fmt::format("{}{}", list.ids[0][token], value == kQuestion ? "?" : fmt::format("={}", value));
}

// A question is named by the symbol that is right.
std::string label_of_symbol(const Exercise& exercise, std::size_t token) {
  const std::size_t told = exercise.ids[0].size() - exercise.answers.size();
  const std::int32_t symbol = token < told ? exercise.ids[0][token] : exercise.answers[token - told];
  if (symbol == kNoise) return "·";
  return std::string(1, static_cast<char>('A' + symbol)) + (token < told ? "" : "?");
}

// What each question reads of the tokens before the questions.
inspect::AttentionMap map_of(Reader& reader, std::size_t layer, const std::string& name,
                             const Exercise& exercise,
                             const std::function<std::string(const Exercise&, std::size_t)>& label) {
  const std::size_t length = exercise.ids[0].size(), told = length - exercise.answers.size();
  const Tensor weights = reader.weights(exercise, layer);
  inspect::AttentionMap map{.name = name, .query_tokens = {}, .key_tokens = {}, .weights = {}};
  for (std::size_t j = 0; j < told; ++j) map.key_tokens.push_back(label(exercise, j));
  for (std::size_t i = told; i < length; ++i) {
    map.query_tokens.push_back(label(exercise, i));
    // Shares of a row's weights: a recurrence's need not sum to 1, and may be negative.
    std::vector<float> row(told);
    float sum = 0.0f;
    for (std::int64_t head = 0; head < weights.size(1); ++head) {
      const float* of_head = weights.data<float>() + (static_cast<std::size_t>(head) * length + i) * length;
      for (std::size_t j = 0; j < told; ++j) {
        row[j] += std::abs(of_head[j]);
        sum += std::abs(of_head[j]);
      }
    }
    for (const float weight : row) map.weights.push_back(sum > 0.0f ? weight / sum : 0.0f);
  }
  return map;
}

void draw_weights(Run& run, const Task& recall, std::deque<Reader>& recalling, const Task& copying,
                  std::deque<Reader>& copyists) {
  constexpr std::uint64_t shown = std::uint64_t{1} << 31;
  inspect::InspectPage page{.title = "What questions read of the tokens before them"};
  const Exercise list = recall.draw(run.seed(), shown, 8);
  for (std::size_t i = 0; i < 3; ++i)
    page.maps.push_back(map_of(recalling[i], 0, recall.contenders[i].name, list, label_of_pair));
  const Exercise noisy = copying.draw(run.seed(), shown, copying.learned.front());
  for (const std::size_t i : {1, 2, 4}) {
    const std::size_t last = copying.contenders[i].mixers.size() - 1;
    page.maps.push_back(
        map_of(copyists[i], last, copying.contenders[i].name + ", the second", noisy, label_of_symbol));
  }
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

std::deque<Reader> trained(Run& run, const Task& task) {
  std::deque<Reader> readers;
  for (const Contender& contender : task.contenders) {
    readers.emplace_back(run.seed(), task.vocabulary, contender.mixers);
    train_reader(run, task, contender.name + task.curve, readers.back());
  }
  return readers;
}

void example(Run& run) {
  run.report().notes = {
      "A list tells the values of keys, and tells the same keys again in another order with other values. "
      "Then each key is asked for.",
      "Symbols stand at random places among noise. They are to be written out in order at the end.",
      "Keys and values stand among thousands of tokens of noise. Then each key is asked for.",
      "Recurrences keep a state of one size, softmax attention keeps all keys and values."};
  const Task lists = recall(), noisy = copying();
  std::deque<Reader> recalling = trained(run, lists);
  compare(run, lists, recalling);
  compare_outdated(run, lists, recalling);
  compare_bytes(run, lists, recalling);
  compare_hybrid(run, lists, recalling);
  std::deque<Reader> copyists = trained(run, noisy);
  compare(run, noisy, copyists);
  compare_bytes(run, noisy, copyists);
  draw_weights(run, lists, recalling, noisy, copyists);
  const Task lists_in_noise = long_recall();
  std::deque<Reader> decoding = trained(run, lists_in_noise);
  compare_long(run, lists_in_noise, decoding);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "remember", .title = "The last value, and symbols among noise"},
                      example);
}
