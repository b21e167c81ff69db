#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "files/base64.h"
#include "fovea/inspect/colour_map.h"
#include "inspect/page.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

using nlohmann::json;

struct Quantised {
  int bits;
  double low, step;
  std::string bytes;
};

Quantised quantise(const std::vector<float>& weights, int bits) {
  const std::uint32_t top = (1U << bits) - 1, levels = top - 3;  // the highest level that is a number
  double low = 0,
         high =
             0;  // zero is always a level of its own when no weight is negative: hidden keys stay exactly 0
  for (const float weight : weights) {
    if (!std::isfinite(weight)) continue;
    low = std::min<double>(low, weight);
    high = std::max<double>(high, weight);
  }
  Quantised quantised{bits, low, (high - low) / levels, {}};
  quantised.bytes.reserve(weights.size() * static_cast<std::size_t>(bits / 8));
  for (const float weight : weights) {
    std::uint32_t code = 0;
    if (std::isnan(weight)) {
      code = top;
    } else if (std::isinf(weight)) {
      code = weight > 0 ? top - 1 : top - 2;
    } else if (quantised.step > 0) {
      code = std::min(levels, static_cast<std::uint32_t>(std::lround((weight - low) / quantised.step)));
    }
    for (int shift = 0; shift < bits; shift += 8) quantised.bytes.push_back(static_cast<char>(code >> shift));
  }
  return quantised;
}

json tokens_json(const std::vector<std::string>& tokens) {
  json array = json::array();
  for (const std::string& token : tokens) array.push_back(valid_utf8(token));
  return array;
}

std::string colours(Theme theme) {
  std::string bytes;
  for (const Rgb& colour : colour_table(theme)) {
    for (const std::uint8_t part : {colour.red, colour.green, colour.blue}) bytes += static_cast<char>(part);
  }
  return files::to_base64(bytes);
}

json series(Theme theme) {
  json all = json::array();
  for (int i = 0; i < kSeriesColours; ++i) {
    const Rgb colour = series_colour(i, theme);
    all.push_back({colour.red, colour.green, colour.blue});
  }
  return all;
}

int choose_bits(const std::vector<InspectPage>& pages, const HtmlOptions& options) {
  if (options.quantisation != Quantisation::automatic)
    return options.quantisation == Quantisation::bits8 ? 8 : 16;
  constexpr std::size_t kFineLimit = 4'000'000;
  std::size_t count = 0;
  for (const InspectPage& page : pages) {
    for (const AttentionMap& map : page.maps) count += map.weights.size();
  }
  return count <= kFineLimit ? 16 : 8;
}

}  // namespace

std::string viewer_json(const std::vector<InspectPage>& pages, const HtmlOptions& options) {
  const int bits = choose_bits(pages, options);
  json all = {{"colours", {{"light", colours(Theme::light)}, {"dark", colours(Theme::dark)}}},
              {"series", {{"light", series(Theme::light)}, {"dark", series(Theme::dark)}}},
              {"pages", json::array()}};
  for (const InspectPage& page : pages) {
    json maps = json::array();
    for (const AttentionMap& map : page.maps) {
      check(map, "render_html");
      Quantised quantised = quantise(map.weights, bits);
      maps.push_back({{"name", valid_utf8(map.name)},
                      {"layer", map.layer},
                      {"heads", map.heads},
                      {"rows", tokens_json(map.query_tokens)},
                      {"columns", tokens_json(map.key_tokens)},
                      {"bits", bits},
                      {"low", quantised.low},
                      {"step", quantised.step},
                      {"weights", files::to_base64(quantised.bytes)}});
    }
    all["pages"].push_back({{"maps", std::move(maps)}});
  }
  const std::string plain = all.dump(-1, ' ', true);  // ASCII only, so U+2028 and U+2029 are escaped, too
  std::string safe;
  safe.reserve(plain.size() + plain.size() / 64);
  for (const char byte : plain) {  // these three occur only inside JSON strings
    if (byte == '<') {
      safe += "\\u003c";
    } else if (byte == '>') {
      safe += "\\u003e";
    } else if (byte == '&') {
      safe += "\\u0026";
    } else {
      safe += byte;
    }
  }
  return safe;
}

}  // namespace fovea::inspect
