// Which line of a program failed? The network reads source code with its syntax tree as a mask, the error
// log, and the user's words. The words of the program attend to those of the report, and a pointer over the
// lines is the answer.
//
// Baselines: the same network without one of the three sources, and a bag of words (tf-idf).
#include <algorithm>
#include <variant>

#include "fovea/train/fit.h"
#include "gallery.h"
#include "tracer.h"

namespace {

using namespace fovea;
using namespace trace_example;
using autograd::Var;

std::vector<Program> programs_of(PhiloxStream& random, std::int64_t count, text::Split split) {
  std::vector<Program> programs;
  for (std::int64_t i = 0; i < count; ++i) programs.push_back(draw_program(random, split));
  return programs;
}

// -- training

void train_tracer(gallery::Run& run, const text::Vocabulary& words, nn::ParameterSet& set,
                  const Tracer& tracer, Given given, const std::string& what) {
  const train::FitOptions options{
      .updates = run.scaled(1400, 4), .schedule = nn::WarmupCosine{.peak = 2e-3}, .seed = run.seed()};
  const auto loss = [&](nn::Context& context, std::int64_t update) {
    PhiloxStream random((run.seed() << 40) + static_cast<std::uint64_t>(update));
    const Batch batch = batch_of(programs_of(random, 32, text::Split::train), words, given, random);
    return negative_log_likelihood(tracer(context, batch), batch.failed,
                                   {.scale = 1.0f / static_cast<float>(batch.failed.size())});
  };
  train::fit(set, options, loss, run.progress(what));
}

// -- evaluation

double evaluate(const std::vector<Program>& programs, const text::Vocabulary& words, const Tracer& tracer,
                Given given, std::uint64_t seed) {
  constexpr std::size_t at_once = 50;
  PhiloxStream random((seed << 40) + (1u << 31));
  double right = 0;
  for (std::size_t begin = 0; begin < programs.size(); begin += at_once) {
    const std::span part(programs.data() + begin, std::min(at_once, programs.size() - begin));
    nn::Context context;
    const Tensor likely = tracer(context, batch_of(part, words, given, random)).value();
    const std::vector<std::int32_t> lines = autograd::argmax_rows(likely);
    for (std::size_t i = 0; i < part.size(); ++i) right += lines[i] == part[i].failed;
  }
  return right / static_cast<double>(programs.size());
}

double evaluate_bag_of_words(const std::vector<Program>& programs) {
  double right = 0;
  for (const Program& program : programs) right += nearest_words(program) == program.failed;
  return right / static_cast<double>(programs.size());
}

// -- picture: the words of log and user that each line attends to, and the line that the pointer chooses

// Indentation as bars: on the page of the report labels are flush right.
std::string with_bars(const std::string& source) {
  const std::size_t indented = source.find_first_not_of(' ') / 4;
  std::string bars;
  for (std::size_t level = 0; level < indented; ++level) bars += "│ ";
  return bars + source.substr(4 * indented);
}

// The largest weight on word `place` of the report, over the parts of line `number`; weights are means over
// the heads.
float found(const Tensor& weights, std::int64_t number, std::int64_t place) {
  float largest = 0.0f;
  for (std::int64_t part = 0; part < Tracer::kParts; ++part) {
    float sum = 0.0f;
    for (std::int64_t head = 0; head < weights.size(1); ++head)
      sum += weights.view().at<float>({0, head, number * Tracer::kParts + part, place});
    largest = std::max(largest, sum / static_cast<float>(weights.size(1)));
  }
  return largest;
}

// The lines of the program are the labels of the rows. They begin at the left edge of the picture, as code
// does, and so show their indentation.
inspect::Drawing with_lines_on_the_left(inspect::Drawing drawing) {
  double left = drawing.width;
  for (const inspect::Item& item : drawing.items) {
    if (const auto* text = std::get_if<inspect::Text>(&item)) left = std::min(left, text->x);
  }
  for (inspect::Item& item : drawing.items) {
    auto* text = std::get_if<inspect::Text>(&item);
    if (text == nullptr || text->anchor != inspect::Anchor::end) continue;
    text->anchor = inspect::Anchor::start;
    text->x = left;
  }
  return drawing;
}

void draw_trace(gallery::Run& run, const Program& program, const text::Vocabulary& words,
                const Tracer& tracer) {
  PhiloxStream random(run.seed());
  nn::Context context;
  Tensor weights;
  const Tensor pointed =
      tracer(context, batch_of(std::span(&program, 1), words, Given::all, random), &weights).value();
  inspect::AlignmentMatrix matrix{.target_tokens = {}, .source_tokens = program.log, .weights = {}};
  matrix.source_tokens.insert(matrix.source_tokens.end(), program.said.begin(), program.said.end());
  matrix.source_tokens.push_back("(points at)");
  for (std::int64_t number = 0; number < std::ssize(program.lines); ++number) {
    matrix.target_tokens.push_back(with_bars(program.lines[static_cast<std::size_t>(number)].source));
    // The first place of either part holds its marker; its words follow.
    for (std::int64_t place = 1; place <= std::ssize(program.log); ++place)
      matrix.weights.push_back(found(weights, number, place));
    for (std::int64_t place = 1; place <= std::ssize(program.said); ++place)
      matrix.weights.push_back(found(weights, number, kReportWords + place));
    matrix.weights.push_back(pointed.data<float>()[number]);
  }
  const std::string log = text::joined(program.log), said = text::joined(program.said);
  const inspect::InspectPage page{
      .title = "The line that failed",
      .source = "log: " + log + "; user: " + said,
      .output = program.lines[static_cast<std::size_t>(program.failed)].source,
      .facts = {},
      .maps = {inspect::as_map(matrix, "lines (down), the words of the log, then the user's (across)")}};
  run.picture(with_lines_on_the_left(pictures::draw_picture(page)));
  run.report().pages.push_back(page);
}

void example(gallery::Run& run) {
  const text::Vocabulary words = vocabulary();
  PhiloxStream random((run.seed() << 40) + (1u << 30));
  const std::vector<Program> held_out = programs_of(random, run.scaled(2000, 12), text::Split::test);
  struct Tried {
    Given given;
    std::string name;
    std::optional<double> at_least, at_most;
  };
  const Tried tried[] = {{Given::all, "tree, log and user", 0.95, {}},
                         {Given::no_tree, "no tree: log and user", {}, 0.6},
                         {Given::no_log, "no log: tree and user", {}, 0.6},
                         {Given::no_user, "no user: tree and log", {}, 0.6}};
  for (const auto& [given, name, at_least, at_most] : tried) {
    nn::ParameterSet set(run.seed());
    const Tracer tracer(set, words.size(), given);
    train_tracer(run, words, set, tracer, given, name);
    run.figure({.what = "the line that failed",
                .of = name,
                .value = evaluate(held_out, words, tracer, given, run.seed()),
                .at_least = at_least,
                .at_most = at_most});
    if (given == Given::all) draw_trace(run, held_out.front(), words, tracer);
  }
  run.figure({.what = "the line that failed",
              .of = "bag of words (baseline)",
              .value = evaluate_bag_of_words(held_out)});
  run.report().notes.push_back(
      "A program failed. Its log names the kind of failure and the function, its user what was being worked "
      "on, and the syntax tree which lines are that function's own. Only the three together find the line.");
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "trace", .title = "The line that failed", .data = {}}, example);
}
