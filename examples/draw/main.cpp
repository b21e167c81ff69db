#include <fovea/pictures/graph.h>
#include <fovea/pictures/render.h>

#include <iostream>

using namespace fovea;

int main() {
  const std::vector<std::string> words{"The", "cat", "sat"};
  const inspect::AttentionMap map{.name = "self",
                                  .query_tokens = words,
                                  .key_tokens = words,
                                  .heads = 1,
                                  .weights = {1.0f, 0, 0, 0.4f, 0.6f, 0, 0.1f, 0.7f, 0.2f}};
  const inspect::Drawing drawing = pictures::draw_graph({map}, {.words = inspect::find_word(map, "sat")});
  for (const std::string& character : pictures::write("sat.pdf", drawing, {.theme = inspect::Theme::dark}))
    std::cerr << "no font has " << character << "\n";
}
