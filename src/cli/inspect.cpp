#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/drawing.h"
#include "cli/generate_ids.h"
#include "cli/ids.h"
#include "cli/texts.h"
#include "cli/views.h"
#include "fovea/inspect/graph.h"
#include "fovea/inspect/html.h"
#include "fovea/text/tokenizer.h"

namespace fovea::cli {
namespace {

struct InspectCommand {
  std::string model, source, target, source_ids, target_ids, html, picture, graph,
      theme = "light", over = "tokens", weights = "f32";
  std::vector<std::string> words, maps;
  std::vector<int> heads;
  bool show = false, json = false;
};

// An argument is checked as a line of a file would be.
void check_line(const char* flag, const std::string& line) {
  check_utf8("fovea inspect", flag, line);
  if (line.find('\n') != std::string::npos)
    throw InvalidArgument("fovea inspect", flag, "one line", "several");
}

// Checks the options before the model is read.
bool wants_maps(const InspectCommand& o) {
  return !o.html.empty() || !o.picture.empty() || !o.graph.empty() || o.show || o.json;
}

void check_options(const InspectCommand& o) {
  check_line("--source", o.source);
  check_line("--target", o.target);
  for (const std::string& word : o.words) check_line("--word", word);
  if (o.source.empty() == o.source_ids.empty())
    throw InvalidArgument("fovea inspect", "--source, --source-ids", "one of them",
                          o.source.empty() ? "none" : "both");
  if (!o.target.empty() && !o.target_ids.empty())
    throw InvalidArgument("fovea inspect", "--target, --target-ids", "one of them at most", "both");
  if (o.source.empty() && !o.target.empty())
    throw InvalidArgument("fovea inspect", "--target", "--target-ids beside --source-ids", "a text");
  if (o.show && o.json)
    throw InvalidArgument("fovea inspect", "--show", "nothing beside --json, which has the output", "--show");
  const std::pair<const char*, const std::string*> files[] = {
      {"--html", &o.html}, {"--picture", &o.picture}, {"--graph", &o.graph}};
  for (const auto& [flag, path] : files) {
    if (path->empty()) continue;
    if (path != &o.html) (void)drawing().format_of(*path, std::string("fovea inspect ") + flag);
    for (const auto& [other_flag, other] : files) {
      if (other != path && !other->empty() && same_file(*other, *path))
        throw InvalidArgument("fovea inspect", flag, std::string("a file other than that of ") + other_flag,
                              *path);
    }
  }
  if (o.graph.empty() && !o.show) {
    for (const auto& [flag, given] :
         {std::pair("--word", !o.words.empty()), std::pair("--map", !o.maps.empty()),
          std::pair("--heads", !o.heads.empty())}) {
      if (given) throw InvalidArgument("fovea inspect", flag, "--graph or --show beside it", "neither");
    }
  }
}

// The maps whose graph is drawn. --map names them by the beginnings of their names. Without --map the last
// map of the encoder is drawn, in which a sentence attends to itself. A model without an encoder shows its
// last map.
std::vector<inspect::AttentionMap> chosen_maps(const InspectCommand& o, const inspect::InspectPage& page) {
  std::vector<inspect::AttentionMap> chosen;
  for (const std::string& name : o.maps) {
    const std::size_t before = chosen.size();
    for (const inspect::AttentionMap& map : page.maps) {
      if (map.name.starts_with(name)) chosen.push_back(map);
    }
    if (chosen.size() > before) continue;
    std::string names;
    for (const inspect::AttentionMap& map : page.maps) names += (names.empty() ? "" : ", ") + map.name;
    throw InvalidArgument("fovea inspect", "--map", "the beginning of one of: " + names, "'" + name + "'");
  }
  if (!chosen.empty()) return chosen;
  const auto encoder =
      std::find_if(page.maps.rbegin(), page.maps.rend(),
                   [](const inspect::AttentionMap& map) { return map.name.starts_with("encoder"); });
  return {encoder != page.maps.rend() ? *encoder : page.maps.back()};
}

std::vector<inspect::PickedWord> picked_words(const InspectCommand& o, const inspect::AttentionMap& map) {
  std::vector<inspect::PickedWord> picked;
  for (const std::string& word : o.words) {
    const std::vector<inspect::PickedWord> places = inspect::find_word(map, word);
    if (places.empty()) {
      std::string tokens;
      for (const auto* side : {&map.query_tokens, &map.key_tokens}) {
        for (const std::string& token : *side) tokens += " " + token;
        if (map.query_tokens == map.key_tokens) break;
      }
      throw InvalidArgument("fovea inspect", "--word", "one of the words of '" + map.name + "':" + tokens,
                            "'" + word + "'");
    }
    picked.insert(picked.end(), places.begin(), places.end());
  }
  return picked;
}

void warn(const std::string& path, const pictures::Uncovered& uncovered) {
  if (uncovered.empty()) return;
  fmt::print(stderr,
             "{}: no font of this machine has {}; boxes stand in their place (Debian: fonts-noto-core, "
             "fonts-noto-cjk, fonts-noto-color-emoji)\n",
             path, fmt::join(uncovered, " "));
}

void draw_graphs(const InspectCommand& o, const inspect::InspectPage& page) {
  const pictures::RenderOptions rendering{.theme = o.theme == "dark" ? inspect::Theme::dark
                                                                     : inspect::Theme::light};
  if (!o.picture.empty()) warn(o.picture, drawing().write(o.picture, drawing().draw_page(page), rendering));
  if (o.graph.empty() && !o.show) return;
  const std::vector<inspect::AttentionMap> maps = chosen_maps(o, page);
  std::vector<int> heads;
  for (const int head : o.heads) {
    const int most = std::min_element(maps.begin(), maps.end(), [](const auto& a, const auto& b) {
                       return a.heads < b.heads;
                     })->heads;
    if (head > most)
      throw InvalidArgument("fovea inspect", "--heads", "1 to " + std::to_string(most), std::to_string(head));
    heads.push_back(head - 1);
  }
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  // Words are the same for maps over the same tokens; other maps are drawn with their own.
  std::vector<std::vector<inspect::PickedWord>> words;
  for (const inspect::AttentionMap& map : maps) words.push_back(picked_words(o, map));
  if (!o.graph.empty()) {
    if (std::any_of(words.begin(), words.end(), [&](const auto& of_map) { return of_map != words[0]; })) {
      throw InvalidArgument("fovea inspect", "--map",
                            "maps with --word at the same place, because they share one picture",
                            "maps of different words");
    }
    warn(o.graph,
         drawing().write(o.graph,
                         drawing().draw_graph(maps, {.title = o.source, .heads = heads, .words = words[0]}),
                         rendering));
  }
  for (std::size_t m = 0; m < maps.size() && o.show; ++m)
    fmt::print("{}\n", inspect::draw_terminal_graph(maps[m], heads, words[m]));
}

// A picture has a cell of a few dots a pair of words: beyond this the picture is not readable.
constexpr std::size_t longest = 500;

void check_length(const char* flag, std::size_t pieces) {
  if (pieces > longest)
    throw InvalidArgument("fovea inspect", flag, "at most " + std::to_string(longest) + " pieces",
                          std::to_string(pieces));
  if (pieces == 0) throw InvalidArgument("fovea inspect", flag, "a sentence of one piece at least", "none");
}

// Of a model of another library.
void check_reads(const models::ModelFolder& folder, const char* flag, const Ids& ids) {
  const models::FamilyConfig config = models::read_family(folder.config()).config;
  check_vocabulary("fovea inspect", flag, ids, config.vocabulary);
  if (models::positions_end(config) && std::ssize(ids) > config.positions)
    throw InvalidArgument("fovea inspect", flag,
                          fmt::format("at most the {} ids that the model reads", config.positions),
                          std::to_string(ids.size()));
}

// The page as one JSON object. Texts are those of the page.
void print_json(const inspect::InspectPage& page) {
  nlohmann::ordered_json object{{"source", page.source}, {"output", page.output}};
  for (const auto& [name, value] : page.facts) object["facts"][name] = value;
  std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.back() = ',';
  text += "\"maps\":[";
  for (const inspect::AttentionMap& map : page.maps)
    text += (&map == page.maps.data() ? "" : ",") + inspect::to_json(map);
  fmt::print("{}]}}\n", text);
}

// The files and the output that the options ask for.
void show_page(const InspectCommand& o, const inspect::InspectPage& page) {
  if (!o.html.empty()) inspect::write_html(o.html, page);
  draw_graphs(o, page);
  if (o.json) print_json(page);
}

// What each layer keeps. A model whose layers are all attention has only maps to show.
void print_facts(const InspectCommand& o, const inspect::InspectPage& page) {
  if (page.facts.empty() && !wants_maps(o))
    throw InvalidArgument(
        "fovea inspect", "--html, --picture, --graph, --show, --json",
        "at least one of them, because all layers are attention: a file to write, the graph "
        "in the terminal, or numbers",
        "none");
  if (o.json) return;
  for (const auto& [layer, keeps] : page.facts) fmt::print("{}: {}\n", layer, keeps);
}

autograd::WeightType weights_of(const InspectCommand& o) {
  return autograd::parse_weight_type(o.weights);
}

void show_tokens(const InspectCommand& o, TokenPage page, const std::string& output) {
  page.page.source = o.source.empty() ? o.source_ids : o.source;
  page.page.output = output;
  if (page.page.maps.empty() && wants_maps(o))
    throw InvalidArgument("fovea inspect", "--model",
                          "a model with a layer whose weights can be drawn; without --html, --picture, "
                          "--graph, --show and --json what its layers keep is printed",
                          "layers of Mamba, whose channels have weights of their own");
  print_facts(o, page.page);
  page.page.facts.insert(page.page.facts.begin(), {"model", o.model});
  show_page(o, o.over == "words" ? over_words(page) : page.page);
}

// `prefix`: of a translator's folder, before each of its texts.
text::Pieces source_of(const InspectCommand& o, const std::string& prefix = {}) {
  if (!o.source_ids.empty()) {
    text::Pieces pieces = text::number_pieces(parse_ids(o.source_ids, "--source-ids"));
    check_length("--source-ids", pieces.ids.size());
    return pieces;
  }
  text::Pieces pieces = text::read_pieces(o.model)->read(prefix + o.source);
  check_length("--source", pieces.ids.size());
  return pieces;
}

// One text alone, of a language model or an encoder.
void run_reader(const InspectCommand& o, const models::ModelFolder& folder) {
  for (const auto& [flag, given] :
       {std::pair("--target", !o.target.empty()), std::pair("--target-ids", !o.target_ids.empty())}) {
    if (given)
      throw InvalidArgument("fovea inspect", flag, "nothing, because the model reads one text", "a text");
  }
  text::Pieces source = source_of(o);
  if (models::family_kind(folder.config()))
    check_reads(folder, o.source_ids.empty() ? "--source" : "--source-ids", source.ids);
  show_tokens(o,
              is_language_model(folder)
                  ? language_page(folder, "Fovea: layers", std::move(source), weights_of(o))
                  : encoder_page(folder, "Fovea: attention", std::move(source), weights_of(o)),
              "");
}

// What a translator of another library writes: the ids that are given, or its own translation.
Ids target_of(const InspectCommand& o, const models::ModelFolder& folder, const Ids& source) {
  if (!o.target_ids.empty()) return parse_ids(o.target_ids, "--target-ids");
  const models::GenerationDefaults defaults = folder.generation();
  if (o.target.empty()) {
    const auto model = folder.sequence_to_sequence(weights_of(o));
    // As fovea translate writes it, but for what is too long for a picture.
    models::TranslatorBeams beams = folder.translator_beams(defaults);
    beams.length_of = [length_of = beams.length_of](std::int64_t of_source) {
      return std::min<std::int64_t>(length_of(of_source), longest);
    };
    beams.search.cancelled = [] { return stop_requested(); };
    Ids ids = searched_ids(*model, source, beams).ids;
    if (ids.empty()) throw Stopped{"stopped before a translation had ended"};
    return ids;
  }
  if (defaults.stop_ids.empty())
    throw FileError(o.model, -1, "does not say which id ends a text: eos_token_id");
  Ids ids = text::read_pieces(o.model)->target(o.target);
  if (defaults.rules.forced_bos) ids.insert(ids.begin(), *defaults.rules.forced_bos);
  ids.push_back(defaults.stop_ids.front());
  return ids;
}

void run_family_translator(const InspectCommand& o, const models::ModelFolder& folder) {
  text::Pieces source = source_of(o, folder.generation().prefix);
  check_reads(folder, o.source_ids.empty() ? "--source" : "--source-ids", source.ids);
  const Ids ids = target_of(o, folder, source.ids);
  const char* const target_flag = o.target_ids.empty() ? "--target" : "--target-ids";
  check_length(target_flag, ids.size());
  check_reads(folder, target_flag, ids);
  const bool numbers = !o.source_ids.empty();
  text::Pieces target = numbers ? text::number_pieces(ids) : text::read_pieces(o.model)->written(ids);
  const std::string written =
      numbers ? fmt::format("{}", fmt::join(ids, " ")) : text::read_pieces(o.model)->decode(ids);
  show_tokens(
      o, translator_page(folder, "Fovea: attention", std::move(source), std::move(target), weights_of(o)),
      written);
  if (!o.json) fmt::print("{}\n", written);
}

void run_own_translator(const InspectCommand& o) {
  for (const auto& [flag, given] :
       {std::pair("--source-ids", !o.source_ids.empty()), std::pair("--target-ids", !o.target_ids.empty()),
        std::pair("--over", o.over == "words")}) {
    if (given)
      throw InvalidArgument("fovea inspect", flag, "a model that is no translator of fovea train", o.model);
  }
  train::Translator translator = train::Translator::load(o.model, weights_of(o));
  if (!translator.model().attends())
    throw InvalidArgument("fovea inspect", "--model", "a model with attention", "one without");
  for (const auto& [flag, line] : {std::pair("--source", o.source), std::pair("--target", o.target)}) {
    const std::size_t pieces = translator.tokenizer().encode(line).size();
    if (pieces > longest)
      throw InvalidArgument("fovea inspect", flag, "at most " + std::to_string(longest) + " pieces",
                            std::to_string(pieces));
  }
  const std::string target =
      o.target.empty() ? translator.translate({o.source}, {.beam_size = 5})[0][0].text : o.target;
  inspect::InspectPage page = page_of(translator, "Fovea: attention", o.source, target);
  print_facts(o, page);
  page.facts.insert(
      page.facts.begin(),
      {{"model", o.model}, {"parameters", std::to_string(translator.model().parameters().count())}});
  show_page(o, page);
  if (!o.json) fmt::print("{}\n", target);
}

void run(const InspectCommand& o) {
  check_options(o);
  const models::ModelFolder folder(o.model);
  folder.check_runs();
  const auto kind = models::family_kind(folder.config());
  if (is_language_model(folder) || kind == models::FamilyKind::encoder) return run_reader(o, folder);
  if (kind == models::FamilyKind::translator) return run_family_translator(o, folder);
  run_own_translator(o);
}

}  // namespace

void register_inspect(Command app) {
  auto o = std::make_shared<InspectCommand>();
  Command command = app.add_subcommand("inspect", "Draw the attention of all layers and heads");
  command.add_option("--model", o->model, "folder of a model, of ours or of transformers").required();
  command.add_option("--source", o->source, "the sentence to read");
  command.add_option("--target", o->target, "the sentence to write; default: the model's own translation");
  command.add_option("--source-ids", o->source_ids,
                     "token ids to read, such as '5 6 7', without a tokenizer");
  command.add_option("--target-ids", o->target_ids,
                     "of another library's translator: token ids to write, the last one included");
  command.add_option("--over", o->over, "what a row and a column are; tokens of a word may be joined")
      .check(one_of({"tokens", "words"}));
  add_weights_option(command, o->weights);
  command.add_flag("--json", o->json, "print all weights as one JSON object");
  command.add_option("--html", o->html, "one self-contained page").check(file_name());
  command.add_option("--picture,--png", o->picture, "all matrices: FILE.png, FILE.svg or FILE.pdf")
      .check(file_name());
  command.add_option("--graph", o->graph, "words joined by arcs: FILE.png, FILE.svg or FILE.pdf")
      .check(file_name());
  command.add_flag("--show", o->show, "the words joined by strokes, and their weights, in the terminal");
  command
      .add_option("--word", o->words, "of --graph and --show: a word picked out; may be given several times")
      .one_argument_each();
  command
      .add_option(
          "--map", o->maps,
          "of --graph and --show: the beginning of a map's name, such as 'decoder.cross' or 'encoder.self "
          "layer 1'; default: the encoder's last; may be given several times")
      .one_argument_each();
  command
      .add_option("--heads", o->heads,
                  "of --graph and --show: the heads whose arcs are drawn, 1,3; default: all")
      .delimiter(',')
      .check(in_range(1, 1024));
  command.add_option("--theme", o->theme, "of --picture and --graph").check(one_of({"light", "dark"}));
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli
