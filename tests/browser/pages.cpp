// Writes the pages that tests/browser/browse.py opens: `browser_pages FOLDER`.
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "fovea/inspect/html.h"
#include "fovea/inspect/report.h"
#include "inspect/samples.h"

namespace {

using namespace fovea::inspect;

// Every row looks most at the column `shift` further on, the more so the higher the head.
AttentionMap shifted(const std::string& name, const std::vector<std::string>& rows,
                     const std::vector<std::string>& columns, int heads, int shift) {
  AttentionMap map{.name = name, .query_tokens = rows, .key_tokens = columns, .heads = heads, .weights = {}};
  const auto count = static_cast<double>(columns.size());
  for (int head = 0; head < heads; ++head) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double center = std::fmod(static_cast<double>(r) + shift * (head + 1), count);
      double sum = 0;
      std::vector<double> line;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        line.push_back(std::exp(-std::abs(static_cast<double>(c) - center) * (1.0 + head)));
        sum += line.back();
      }
      for (const double weight : line) map.weights.push_back(static_cast<float>(weight / sum));
    }
  }
  return map;
}

InspectPage sentence() {
  const std::vector<std::string> source{"The", "cat", "sat", "on", "the", "mat", "."};
  const std::vector<std::string> target{"Le", "chat", "était", "assis", "sur", "le", "tapis", "."};
  return {.title = "The cat sat on the mat.",
          .source = "The cat sat on the mat .",
          .output = "Le chat était assis sur le tapis .",
          .facts = {{"model", "made up"}},
          .maps = {shifted("encoder.self layer 1", source, source, 4, 1),
                   shifted("encoder.self layer 2", source, source, 4, 2),
                   shifted("decoder.cross layer 1", target, source, 1, 0)}};
}

InspectPage scripts() {
  const std::vector<std::string> words{"猫",    "坐在",   "垫子上",  "القطة",
                                       "جلست",  "é",      "e\u0301", "👩\u200d👩\u200d👧",
                                       "हिन्दी", "Straße", "▁sub",    ""};
  return {.title = "Scripts", .maps = {shifted("every script", words, words, 2, 0)}};
}

InspectPage large() {
  const std::vector<std::string> words = samples::words(512, "word");
  return {.title = "Large", .maps = {shifted("512 x 512", words, words, 4, 3)}};
}

InspectPage hostile() {
  std::vector<std::string> texts = samples::hostile;
  texts.insert(texts.end(),
               {"</script><img src=x onerror=\"window.owned=1\">", "<svg onload=\"window.owned=1\">",
                "javascript:window.owned=1", "\u202eright to left\u202c", "{{script}}", "__proto__",
                "constructor", std::string("nul\0nul", 7), std::string(5000, 'W'), "=1+1",
                "\xf0\x9f\x91\xa9\xe2\x80\x8d", "\xed\xa0\xbd", "`${window.owned=1}`"});
  AttentionMap map = shifted(texts[10], texts, texts, 2, 0);
  map.weights[0] = std::nanf("");
  map.weights[1] = std::numeric_limits<float>::infinity();
  InspectPage page{.title = texts[10], .source = texts[10], .output = texts[13], .facts = {}, .maps = {map}};
  for (const std::string& text : texts) page.facts.emplace_back(text, text);
  return page;
}

ReportData report() {
  return {
      .title = "A report",
      .notes = {"Two notes.", "<b>not bold</b>"},
      .bars =
          {{"BLEU by length", "words", "BLEU", {"short", "long"}, {{"one", {50, 20}}, {"two", {60, 55}}}}},
      .charts =
          {{"Loss", "updates", "nats", {{"one", {{0, 3}, {1, 2}, {2, 1.5}}}, {"two", {{0, 2}, {2, 1}}}}}},
      .tables = {{"Table", {"model", "BLEU"}, {{"one", "20.0"}}}},
      .pages = {sentence(), scripts()}};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string folder = arguments[1];
  try {
    write_html(folder + "/sentence.html", sentence());
    write_html(folder + "/scripts.html", scripts());
    write_html(folder + "/large.html", large());
    write_html(folder + "/hostile.html", hostile());
    write_report(folder + "/report.html", report());
  } catch (const fovea::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
