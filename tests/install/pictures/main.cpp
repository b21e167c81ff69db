// One drawing in every format, by the installed component alone.
#include <iostream>
#include <tuple>

#include "fovea/pictures/graph.h"
#include "fovea/pictures/render.h"

int main() {
  using namespace fovea;
  const inspect::AlignmentMatrix alignment{{"le", "chat"}, {"the", "cat"}, {1, 0, 0, 1}};
  const inspect::Drawing drawing = pictures::draw_graph({inspect::as_map(alignment)});
  std::cout << "pictures:";
  for (const auto& [format, begin, name] : {std::tuple(pictures::Format::png, "\x89PNG", "png"),
                                            std::tuple(pictures::Format::svg, "<?xml", "svg"),
                                            std::tuple(pictures::Format::pdf, "%PDF", "pdf")}) {
    if (pictures::render(drawing, format).bytes.starts_with(begin)) std::cout << ' ' << name;
  }
  std::cout << '\n';
}
