#include "pictures/svg_text.h"

#include <map>
#include <regex>
#include <string_view>

#include "inspect/page.h"
#include "inspect/unicode.h"

namespace fovea::pictures {
namespace {

// Renumbers ids: `name` followed by digits, where an id is defined or used: id="surface12", url(#surface12),
// "#surface12".
std::string count_from_zero(const std::string& svg) {
  static const std::regex id("(id=\"|#)([a-z]+-?)([0-9]+)(?=[\")-])");
  std::map<std::string, std::map<std::string, std::size_t>> seen;
  std::string out;
  std::size_t from = 0;
  for (std::sregex_iterator match(svg.begin(), svg.end(), id), end; match != end; ++match) {
    out.append(svg, from, static_cast<std::size_t>(match->position()) - from);
    auto& numbers = seen[(*match)[2]];
    const std::size_t number = numbers.emplace((*match)[3], numbers.size()).first->second;
    out += (*match)[1].str() + (*match)[2].str() + std::to_string(number);
    from = static_cast<std::size_t>(match->position() + match->length());
  }
  return out.append(svg, from);
}

}  // namespace

std::string with_description(const std::string& svg, const inspect::Drawing& drawing) {
  std::string said = "<title>" + inspect::escape_html(drawing.title) + "</title>\n<desc>";
  bool first = true;
  for (const inspect::Item& item : drawing.items) {
    const auto* text = std::get_if<inspect::Text>(&item);
    if (text == nullptr || text->text.empty()) continue;
    if (!first) said += '\n';
    first = false;
    said += inspect::escape_html(text->text);
  }
  said += "</desc>\n";
  const std::size_t open = svg.find("<svg");
  const std::size_t place = open == std::string::npos ? std::string::npos : svg.find(">\n", open);
  if (place == std::string::npos) return svg;
  return count_from_zero(svg.substr(0, place + 2)) + said + count_from_zero(svg.substr(place + 2));
}

}  // namespace fovea::pictures
