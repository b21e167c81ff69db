#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/views.h"
#include "fovea/inspect/html.h"
#include "fovea/inspect/png.h"
#include "text/utf8.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string model, source, target, html, png;
};

// An argument is checked as a line of a file would be.
void check_line(const char* flag, const std::string& line) {
  const std::size_t bad = text::find_invalid_utf8(line);
  if (bad != std::string::npos)
    throw InvalidArgument("fovea inspect", flag, "UTF-8",
                          "other bytes, from byte " + std::to_string(bad + 1) + " on");
  if (line.find('\n') != std::string::npos)
    throw InvalidArgument("fovea inspect", flag, "one line", "several");
}

void run(const Options& o) {
  check_line("--source", o.source);
  check_line("--target", o.target);
  if (o.html.empty() && o.png.empty())
    throw InvalidArgument("fovea inspect", "--html, --png", "at least one file to write", "none");
  if (!o.html.empty() && !o.png.empty() && same_file(o.html, o.png))
    throw InvalidArgument("fovea inspect", "--png", "a file other than that of --html", o.png);
  train::Translator translator = train::Translator::load(o.model);
  if (!translator.model().attends())
    throw InvalidArgument("fovea inspect", "--model", "a model with attention", "one without");
  // A picture has a cell of a few dots a pair of words: beyond this it is no picture any more.
  constexpr std::size_t longest = 500;
  for (const auto& [flag, line] : {std::pair("--source", o.source), std::pair("--target", o.target)}) {
    const std::size_t pieces = translator.tokenizer().encode(line).size();
    if (pieces > longest)
      throw InvalidArgument("fovea inspect", flag, "at most " + std::to_string(longest) + " pieces",
                            std::to_string(pieces));
  }
  const std::string target =
      o.target.empty() ? translator.translate({o.source}, {.beam_size = 5})[0][0].text : o.target;
  inspect::InspectPage page = page_of(translator, "Fovea: attention", o.source, target);
  page.facts = {{"model", o.model}, {"parameters", std::to_string(translator.model().parameters().count())}};
  if (!o.html.empty()) inspect::write_html(o.html, page);
  if (!o.png.empty()) inspect::write_png(o.png, page);
  fmt::print("{}\n", target);
}

}  // namespace

void register_inspect(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Write every layer's and head's attention matrix as a page and a picture");
  command->add_option("--model", o->model, "folder that train wrote")->required();
  command->add_option("--source", o->source, "the sentence to read")->required();
  command->add_option("--target", o->target, "the sentence to write; default: the model's own translation");
  command->add_option("--html", o->html, "one self-contained page");
  command->add_option("--png", o->png, "one picture");
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
