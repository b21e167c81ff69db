// render_template: reads lines {"template": ..., "variables": {...}, "now": seconds} and prints for each
// {"text": ...} or {"error": ...}, for tests/text/chat_oracle.py.
#include <fovea/core/error.h>
#include <fovea/text/chat_template.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

int main() {
  using nlohmann::ordered_json;
  std::string line;
  while (std::getline(std::cin, line)) {
    const ordered_json request = ordered_json::parse(line);
    ordered_json answer;
    try {
      const auto made = fovea::text::Template::parse(request.at("template").get<std::string>(), "template");
      answer["text"] = made.render(request.at("variables").dump(), {}, request.value("now", std::time_t{0}));
    } catch (const fovea::Error& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << '\n';
  }
}
