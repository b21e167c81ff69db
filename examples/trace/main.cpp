// Which line of a program wrote a message of its log: the words of the program attend to the words of the
// message, and a pointer over the lines is the answer. The program is read first, each line by itself and
// then downwards, so that a variable's word knows what the variable holds there.
//
// Baselines: a bag of words (tf-idf), and the same network without one of its two readings.
#include <algorithm>

#include "fovea/train/fit.h"
#include "gallery.h"
#include "tracer.h"

namespace {

using namespace fovea;
using namespace trace_example;
using autograd::Var;

// -- data: programs grow while training

std::vector<Program> programs_of(PhiloxStream& random, std::int64_t count, int lines, text::Split split) {
  std::vector<Program> programs;
  for (std::int64_t i = 0; i < count; ++i) programs.push_back(draw_program(random, lines, split));
  return programs;
}

Batch training_batch(PhiloxStream& random, const text::Vocabulary& words, std::int64_t update,
                     std::int64_t updates) {
  const int lines = std::min(kLines, 12 + static_cast<int>(20 * update / updates));
  return batch_of(programs_of(random, 32, lines, text::Split::train), words, random);
}

// -- training

void train_tracer(gallery::Run& run, const text::Vocabulary& words, nn::ParameterSet& set,
                  const Tracer& tracer, const std::string& what) {
  const train::FitOptions options{
      .updates = run.scaled(1800, 4), .schedule = nn::WarmupCosine{.peak = 1.5e-3}, .seed = run.seed()};
  const auto loss = [&](nn::Context& context, std::int64_t update) {
    PhiloxStream random((run.seed() << 40) + static_cast<std::uint64_t>(update));
    const Batch batch = training_batch(random, words, update, options.updates);
    const std::vector<float> shares(batch.wrote.size(), 1.0f / static_cast<float>(batch.wrote.size()));
    return negative_log_likelihood(tracer(context, batch), batch.wrote, shares);
  };
  train::fit(set, options, loss, run.progress(what));
}

// -- evaluation

struct Result {
  double all = 0.0, through_variables = 0.0, through_helpers = 0.0;
};

// `right`: one a program.
Result result_of(const std::vector<Program>& programs, const std::vector<bool>& right) {
  double found[2] = {}, of[2] = {};
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const bool helper = programs[i].through == Program::Through::helper;
    ++of[helper];
    found[helper] += right[i];
  }
  return {.all = (found[0] + found[1]) / static_cast<double>(programs.size()),
          .through_variables = found[0] / std::max(1.0, of[0]),
          .through_helpers = found[1] / std::max(1.0, of[1])};
}

Result evaluate(const std::vector<Program>& programs, const text::Vocabulary& words, const Tracer& tracer,
                std::uint64_t seed) {
  constexpr std::size_t at_once = 50;
  PhiloxStream random((seed << 40) + (1u << 31));
  std::vector<bool> right;
  for (std::size_t begin = 0; begin < programs.size(); begin += at_once) {
    const std::span part(programs.data() + begin, std::min(at_once, programs.size() - begin));
    nn::Context context;
    const Tensor likely = tracer(context, batch_of(part, words, random)).value();
    const std::vector<std::int32_t> lines = autograd::argmax_rows(likely);
    for (std::size_t i = 0; i < part.size(); ++i) right.push_back(lines[i] == part[i].wrote);
  }
  return result_of(programs, right);
}

Result evaluate_bag_of_words(const std::vector<Program>& programs) {
  std::vector<bool> right;
  for (const Program& program : programs) right.push_back(nearest_words(program) == program.wrote);
  return result_of(programs, right);
}

// -- picture: which words of the message each line finds, and the line that is pointed at

// Of a line's words, the largest weight on word `place` of the message; the mean of the heads.
float found(const Tensor& weights, const Line& line, std::int64_t number, std::int64_t place) {
  float largest = 0.0f;
  for (std::int64_t word = 0; word < std::ssize(line.words); ++word) {
    float sum = 0.0f;
    for (std::int64_t head = 0; head < weights.size(1); ++head)
      sum += weights.view().at<float>({0, head, number * kLineWords + word, place});
    largest = std::max(largest, sum / static_cast<float>(weights.size(1)));
  }
  return largest;
}

void draw_trace(gallery::Run& run, const Program& program, const text::Vocabulary& words,
                const Tracer& tracer) {
  PhiloxStream random(run.seed());
  nn::Context context;
  Tensor weights;
  const Tensor pointed = tracer(context, batch_of(std::span(&program, 1), words, random), &weights).value();
  inspect::AlignmentMatrix matrix{.target_tokens = {}, .source_tokens = program.message, .weights = {}};
  matrix.source_tokens.push_back("(points at)");
  for (std::int64_t number = 0; number < std::ssize(program.lines); ++number) {
    const Line& line = program.lines[static_cast<std::size_t>(number)];
    matrix.target_tokens.push_back(std::to_string(number + 1) + "  " + line.source);
    // The first place of a message stands for the kind of line; its words follow.
    for (std::int64_t place = 1; place <= std::ssize(program.message); ++place)
      matrix.weights.push_back(found(weights, line, number, place));
    matrix.weights.push_back(pointed.data<float>()[number]);
  }
  const inspect::InspectPage page{
      .title = "What each line finds in a message",
      .source = text::joined(program.message),
      .output = program.lines[static_cast<std::size_t>(program.wrote)].source,
      .facts = {},
      .maps = {inspect::as_map(matrix, "lines (down) and the words of the message (across)")}};
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void state(gallery::Run& run, const std::string& of, const Result& result,
           std::optional<double> promised = {}) {
  run.figure({.what = "top-1", .of = of, .value = result.all, .at_least = promised});
  run.figure({.what = "top-1, logs itself", .of = of, .value = result.through_variables});
  run.figure({.what = "top-1, through a helper", .of = of, .value = result.through_helpers});
}

void example(gallery::Run& run) {
  const text::Vocabulary words = vocabulary();
  PhiloxStream random((run.seed() << 40) + (1u << 30));
  const std::vector<Program> held_out = programs_of(random, run.scaled(2000, 12), kLines, text::Split::test);
  const std::tuple<Tracer::Reads, std::string, std::optional<double>> tracers[] = {
      {Tracer::Reads::all, "cross-attention", 0.95},
      {Tracer::Reads::no_message, "the pointer alone compares (baseline)", {}},
      {Tracer::Reads::no_lines_above, "without the lines above (baseline)", {}}};
  for (const auto& [reads, name, promised] : tracers) {
    nn::ParameterSet set(run.seed());
    const Tracer tracer(set, words.size(), reads);
    train_tracer(run, words, set, tracer, name);
    state(run, name, evaluate(held_out, words, tracer, run.seed()), promised);
    if (reads == Tracer::Reads::all) draw_trace(run, held_out.front(), words, tracer);
  }
  state(run, "bag of words (baseline)", evaluate_bag_of_words(held_out));
  run.report().notes.push_back(
      "A message of a log, and the line of the program that wrote it. Several lines share its words; "
      "which of them it was follows from what the variables held there.");
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "trace", .title = "The line that wrote a message", .data = {}},
                      example);
}
