// Which line of a program wrote a message of its log: the words of the message attend to the words of the
// program, and a pointer over the lines is the answer. The program is read first, each line by itself and
// then downwards, so that a variable's word knows what the variable holds there.
//
// Baselines: a bag of words (tf-idf), and the same network without cross-attention, which compares a summary
// of the message with a summary of each line.
#include <algorithm>
#include <map>
#include <cstdlib>

#include "fovea/train/fit.h"
#include "gallery.h"
#include "tracer.h"

double env(const char* n, double d) {
  return std::getenv(n) ? atof(std::getenv(n)) : d;
}
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
  const train::FitOptions options{.updates = run.scaled(env("UPD", 1800), 4),
                                  .schedule = nn::WarmupCosine{.peak = env("LR", 3e-3)},
                                  .seed = run.seed()};
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
  std::map<std::string, int> counts;
  for (std::size_t begin = 0; begin < programs.size(); begin += at_once) {
    const std::span part(programs.data() + begin, std::min(at_once, programs.size() - begin));
    nn::Context context;
    const Tensor likely = tracer(context, batch_of(part, words, random)).value();
    const std::vector<std::int32_t> lines = autograd::argmax_rows(likely);
    for (std::size_t i = 0; i < part.size(); ++i) right.push_back(lines[i] == part[i].wrote);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto& p = part[i]; if (lines[i] == p.wrote) continue;
      const auto& w = p.lines[p.wrote].words; const auto& g = p.lines[lines[i]].words;
      std::string k = w[0] + " -> " + g[0];
      if (w[0] == "call" && g[0] == "call") k += std::string(w[1] == g[1] ? " same helper" : " other helper") + (w[2] == g[2] ? " same var" : " other var");
      ++counts[k];
    }
  }
  for (auto& [a, b] : counts) fprintf(stderr, "%s %d\n", a.c_str(), b);
  return result_of(programs, right);
}

Result evaluate_bag_of_words(const std::vector<Program>& programs) {
  std::vector<bool> right;
  for (const Program& program : programs) right.push_back(nearest_words(program) == program.wrote);
  return result_of(programs, right);
}

// -- picture: where each word of a message looks, and the line that is pointed at

void draw_trace(gallery::Run& run, const Program& program, const text::Vocabulary& words,
                const Tracer& tracer) {
  PhiloxStream random(run.seed());
  nn::Context context;
  Tensor weights;
  const Tensor pointed = tracer(context, batch_of(std::span(&program, 1), words, random), &weights).value();
  inspect::AlignmentMatrix matrix;
  for (std::size_t i = 0; i < program.lines.size(); ++i)
    matrix.target_tokens.push_back(std::to_string(i + 1) + "  " + program.lines[i].source);
  matrix.source_tokens = program.message;
  matrix.source_tokens.push_back("(points at)");
  const std::int64_t heads = weights.size(1), rows = weights.size(2), columns = weights.size(3);
  const auto said = static_cast<std::int64_t>(program.message.size());  // shorter messages are padded
  for (std::int64_t line = 0; line < kLines; ++line) {
    // The first row stands for the kind of line; the message's words follow.
    for (std::int64_t word = 1; word <= said; ++word) {
      float sum = 0.0f;
      for (std::int64_t h = 0; h < heads; ++h) {
        const float* row = weights.data<float>() + (h * rows + word) * columns + line * kLineWords;
        for (int k = 0; k < kLineWords; ++k) sum += row[k];
      }
      matrix.weights.push_back(sum / static_cast<float>(heads));
    }
    matrix.weights.push_back(pointed.data<float>()[line]);
  }
  run.picture(inspect::draw_picture(matrix));
  std::string message;
  for (const std::string& word : program.message) message += (message.empty() ? "" : " ") + word;
  run.report().pages.push_back({.title = "The lines a message looks at",
                                .source = message,
                                .output = program.lines[static_cast<std::size_t>(program.wrote)].source,
                                .facts = {},
                                .maps = {inspect::as_map(matrix, "message to lines")}});
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
  const std::vector<Program> held_out = programs_of(random, run.scaled(2000, 12), kLines,
                                                    env("TEST", 0) ? text::Split::test : text::Split::valid);
  nn::ParameterSet set(run.seed()), pooled_set(run.seed());
  const Tracer tracer(set, words.size(), Tracer::Message::crossed);
  const Tracer pooled(pooled_set, words.size(), Tracer::Message::alone);
  train_tracer(run, words, set, tracer, "cross-attention");
  if (env("ONLY", 0)) {
    state(run, "cross-attention", evaluate(held_out, words, tracer, run.seed()), 0.95);
    return;
  }
  train_tracer(run, words, pooled_set, pooled, "summaries");
  state(run, "cross-attention", evaluate(held_out, words, tracer, run.seed()), 0.95);
  state(run, "summaries compared (baseline)", evaluate(held_out, words, pooled, run.seed()));
  state(run, "bag of words (baseline)", evaluate_bag_of_words(held_out));
  run.report().notes.push_back(
      "A message of a log, and the line of the program that wrote it. Several lines share its words; which "
      "of "
      "them it was follows from what the variables held there.");
  draw_trace(run, held_out.front(), words, tracer);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "trace", .title = "The line that wrote a message", .data = {}},
                      example);
}
