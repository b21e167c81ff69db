// Reading a long stream: a state-space model and a Transformer of equal size learn to remember the last note
// among readings, from streams of 512 tokens. Then both read a stream of 262,144 tokens. The state-space
// model keeps a state of one size, and a token costs the same anywhere. The Transformer keeps all keys and
// values, and each token reads them.
#include <fmt/format.h>

#include <deque>

#include "fovea/pictures/chart.h"
#include "gallery.h"
#include "reader.h"

namespace {

using namespace fovea;
using namespace stream;
using gallery::Run;
using gallery::Unit;

struct Contender {
  std::string name;
  nn::Mixer mixer;
  std::int64_t feed_forward;
};

// Mamba-2 has more parameters in its mixer, so its feed-forward parts are smaller.
std::vector<Contender> contenders() {
  nn::AttentionOptions attention{};
  attention.spec.mods.push_back(AlibiBias{});  // of two notes the later one is wanted
  return {{"Mamba-2", nn::Mamba2Options{.head_dim = 64, .state_dim = 32}, 128},
          {"Transformer", attention, 232}};
}

void train_reader(Run& run, const std::string& name, Reader& reader) {
  const std::int64_t updates = run.scaled(1000, 4), batch = run.scaled(8, 2), length = run.scaled(512, 64);
  train::fit(
      reader.parameters(),
      {.updates = updates,
       .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = updates / 10},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        std::vector<Stream> streams;
        for (std::int64_t n = 0; n < batch; ++n)
          streams.push_back(draw(run.seed(), static_cast<std::uint64_t>(update * batch + n), length));
        return reader.loss(context, streams);
      },
      run.progress(name));
}

// -- reading

std::string tokens_name(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k tokens", tokens / 1024) : fmt::format("{} tokens", tokens);
}

// Seconds of a token that is read alone, behind those in `cache`.
double seconds_of_a_token(const Reader& reader, const nn::StackCache& cache,
                          std::span<const std::int32_t> tokens) {
  nn::StackCache fork = cache.fork();
  reader.read(tokens.first(1), fork);  // its plans
  const gallery::ProcessorStopwatch watch;
  for (const std::int32_t token : tokens.subspan(1)) reader.read({&token, 1}, fork);
  return watch.seconds() / static_cast<double>(tokens.size() - 1);
}

struct Charts {
  inspect::LineChart speed{.title = "Speed of tokens that are read alone",
                           .x_label = "tokens read before",
                           .y_label = "tokens a second",
                           .x_scale = inspect::Scale::log2,
                           .y_scale = inspect::Scale::log10},
      memory{.title = "Memory kept",
             .x_label = "tokens read before",
             .y_label = "KiB",
             .x_scale = inspect::Scale::log2,
             .y_scale = inspect::Scale::log10};
};

// Reads one stream in pieces, and measures behind the numbers of tokens in `marks`.
void read_stream(Run& run, const std::string& name, const Reader& reader,
                 const std::vector<std::int64_t>& marks, Charts& charts) {
  constexpr std::uint64_t held_out = std::uint64_t{1} << 30;
  constexpr std::int64_t piece = 512, alone = 64;
  const Stream all = draw(run.seed(), held_out, marks.back() + alone);
  const std::span<const std::int32_t> tokens(all.tokens);
  nn::StackCache cache = reader.start();
  charts.speed.curves.push_back({name, {}});
  charts.memory.curves.push_back({name, {}});
  std::int64_t right = 0, counted = 0, begin = 0;
  double seconds = 0.0;
  for (const std::int64_t mark : marks) {
    right = counted = 0;
    for (; begin < mark; begin += piece) {
      const gallery::ProcessorStopwatch watch;
      const std::vector<std::int32_t> named =
          reader.read(tokens.subspan(static_cast<std::size_t>(begin), piece), cache);
      seconds += watch.seconds();
      for (std::size_t i = 0; i < named.size(); ++i)
        right += named[i] == all.notes[static_cast<std::size_t>(begin) + i] ? 1 : 0;
      counted += piece;
    }
    const double each =
        seconds_of_a_token(reader, cache, tokens.subspan(static_cast<std::size_t>(mark), alone));
    const auto figure = [&](const char* what, double value, Unit unit) {
      gallery::Figure made{
          .what = fmt::format("{}, {}", what, tokens_name(mark)), .of = name, .value = value, .unit = unit};
      if (unit == Unit::percent && mark >= 16384) made.at_least = 0.95;
      run.figure(made);
    };
    figure("right since the row before", static_cast<double>(right) / static_cast<double>(counted),
           Unit::percent);
    figure("read in pieces", static_cast<double>(mark) / seconds, Unit::per_second);
    figure("read one by one", 1.0 / each, Unit::per_second);
    figure("kept", static_cast<double>(cache.bytes()), Unit::bytes);
    const auto tokens_before = static_cast<double>(mark);
    charts.speed.curves.back().points.push_back({tokens_before, 1.0 / each});
    charts.memory.curves.back().points.push_back({tokens_before, static_cast<double>(cache.bytes()) / 1024});
  }
}

// 65,536 tokens one by one, as a text is generated: the state has the same bytes after each.
void read_alone(Run& run, const Contender& contender, const Reader& reader) {
  const std::int64_t length = run.scaled(65536, 64);
  const Stream all = draw(run.seed(), std::uint64_t{1} << 31, length);
  nn::StackCache cache = reader.start();
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0, right = 0;
  const gallery::ProcessorStopwatch watch;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    right += reader.read({&all.tokens[at], 1}, cache).front() == all.notes[at] ? 1 : 0;
    least = std::min(least, cache.bytes());
    most = std::max(most, cache.bytes());
  }
  const double seconds = watch.seconds();
  const std::string behind = fmt::format(", {} one by one", tokens_name(length));
  run.figure({.what = "right" + behind,
              .of = contender.name,
              .value = static_cast<double>(right) / static_cast<double>(length),
              .at_least = 0.95});
  run.figure({.what = "most kept / least kept" + behind,
              .of = contender.name,
              .value = static_cast<double>(most) / static_cast<double>(least),
              .unit = Unit::ratio,
              .at_most = 1.0});
  run.figure({.what = "tokens a second" + behind,
              .of = contender.name,
              .value = static_cast<double>(length) / seconds,
              .unit = Unit::per_second});
}

// -- the picture

std::string label(const Stream& stream, std::size_t token) {
  const std::int32_t id = stream.tokens[token];
  return id >= kNotes ? fmt::format("note {}", id - kNotes) : std::string("·");
}

// Shares of the weights of each row: those of a recurrence need not sum to 1, and may be negative.
inspect::AttentionMap map_of(Reader& reader, const std::string& name, const Stream& stream,
                             std::size_t layer) {
  const std::size_t length = stream.tokens.size();
  const Tensor weights = reader.weights(stream, layer);
  inspect::AttentionMap map{.name = fmt::format("{}, layer {}", name, layer + 1),
                            .query_tokens = {},
                            .key_tokens = {},
                            .weights = {}};
  for (std::size_t j = 0; j < length; ++j) map.key_tokens.push_back(label(stream, j));
  map.query_tokens = map.key_tokens;
  for (std::size_t i = 0; i < length; ++i) {
    const float* row = weights.data<float>() + i * length;
    float sum = 0.0f;
    for (std::size_t j = 0; j < length; ++j) sum += std::abs(row[j]);
    for (std::size_t j = 0; j < length; ++j)
      map.weights.push_back(sum > 0.0f ? std::abs(row[j]) / sum : 0.0f);
  }
  return map;
}

// A stream in which notes are less rare, so that a picture has some.
Stream drawn_closer(std::uint64_t seed) {
  Stream stream = draw(seed, std::uint64_t{1} << 32, 20);
  for (const std::size_t at : {std::size_t{7}, std::size_t{13}})
    stream.tokens[at] = kNotes + static_cast<std::int32_t>(at % kNotes);
  return stream;
}

void example(Run& run) {
  run.report().notes = {
      "Readings and, one token in 64, notes. The models name the last note at every token. They learned it "
      "from "
      "streams of 512 tokens."};
  const std::vector<Contender> all = contenders();
  // The time of reading 262,144 tokens by attention is minutes, so other seeds stop at 16,384.
  std::vector<std::int64_t> marks{1024, 4096, 16384};
  if (run.is_first_seed()) marks.insert(marks.end(), {65536, 262144});
  if (run.quick()) marks = {512};
  std::deque<Reader> readers;
  for (const Contender& contender : all) {
    readers.emplace_back(run.seed(), contender.mixer, contender.feed_forward);
    run.figure({.what = "parameters",
                .of = contender.name,
                .value = static_cast<double>(readers.back().parameters().count()),
                .unit = Unit::count});
    train_reader(run, contender.name, readers.back());
  }
  inspect::InspectPage page{.title = "What each token reads of the stream"};
  const Stream shown = drawn_closer(run.seed());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      page.maps.push_back(map_of(readers[i], all[i].name, shown, layer));
  }
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
  Charts charts;
  for (std::size_t i = 0; i < all.size(); ++i) read_stream(run, all[i].name, readers[i], marks, charts);
  read_alone(run, all[0], readers[0]);
  run.report().charts = {charts.speed, charts.memory};
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "stream", .title = "Reading a long stream"}, example);
}
