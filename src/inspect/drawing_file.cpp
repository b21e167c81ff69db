#include "fovea/inspect/drawing_file.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::inspect {
namespace {

using nlohmann::json;

// An item is an object with one member named after its kind. A paint is a list: the kind of its colour, the
// colour, and an opacity that is not 1.

[[noreturn]] void refuse(const std::string& what) {
  throw json::other_error::create(501, what, nullptr);
}

json rounded(double position) {
  return std::isnan(position) ? json() : json(std::round(position * 10000) / 10000);
}

double position_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

void append_hex(std::string& text, Rgb colour) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const int channel : {colour.red, colour.green, colour.blue}) {
    text += kDigits[static_cast<std::size_t>(channel / 16)];
    text += kDigits[static_cast<std::size_t>(channel % 16)];
  }
}

// The colours in six hexadecimal digits each.
std::vector<Rgb> colours_of(const std::string& hex) {
  if (hex.size() % 6 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse("colours are six hexadecimal digits each");
  std::vector<Rgb> colours;
  for (std::size_t at = 0; at < hex.size(); at += 6) {
    const auto channel = [&](std::size_t offset) {
      return static_cast<std::uint8_t>(std::stoi(hex.substr(at + offset, 2), nullptr, 16));
    };
    colours.push_back({channel(0), channel(2), channel(4)});
  }
  return colours;
}

// The value of an enumeration whose last one is `last`.
template <typename Enum>
Enum enum_of(const json& value, Enum last) {
  if (!value.is_number_integer()) refuse("a choice that is no whole number");
  const auto number = value.get<std::int64_t>();
  if (number < 0 || number > static_cast<int>(last))
    refuse("a number of no choice: " + std::to_string(number));
  return static_cast<Enum>(number);
}

struct ColourWriter {
  json operator()(Tone tone) const { return {"tone", static_cast<int>(tone)}; }
  json operator()(OnRamp ramp) const { return {"ramp", rounded(ramp.position)}; }
  json operator()(TextOnRamp ramp) const { return {"text", rounded(ramp.position)}; }
  json operator()(Series series) const { return {"series", series.index}; }
  json operator()(Rgb colour) const {
    std::string hex;
    append_hex(hex, colour);
    return {"rgb", hex};
  }
};

json write(const Paint& paint) {
  json list = std::visit(ColourWriter{}, paint.colour);
  if (paint.opacity != 1) list.push_back(paint.opacity);
  return list;
}

Paint read_paint(const json& list) {
  Paint paint{.opacity = list.size() > 2 ? list.at(2).get<double>() : 1.0};
  const std::string kind = list.at(0);
  const json& colour = list.at(1);
  if (kind == "tone") {
    paint.colour = enum_of(colour, Tone::accent);
  } else if (kind == "ramp") {
    paint.colour = OnRamp{position_of(colour)};
  } else if (kind == "text") {
    paint.colour = TextOnRamp{position_of(colour)};
  } else if (kind == "series") {
    const auto series = colour.is_number_unsigned() ? colour.get<std::uint64_t>() : 0;
    if (!colour.is_number_unsigned() || series > 1000) refuse("a series that is no number in [0, 1000]");
    paint.colour = Series{static_cast<int>(series)};
  } else if (kind == "rgb") {
    const auto colours = colours_of(colour.get<std::string>());
    if (colours.size() != 1) refuse("a paint of " + std::to_string(colours.size()) + " colours");
    paint.colour = colours.front();
  } else {
    refuse("a paint of the kind '" + kind + "'");
  }
  return paint;
}

json write(const Point& point) {
  return {point.x, point.y};
}

Point read_point(const json& list) {
  return {list.at(0).get<double>(), list.at(1).get<double>()};
}

struct ItemWriter {
  json operator()(const Rectangle& r) const {
    json item{{"rectangle", {r.x, r.y, r.width, r.height, r.radius}}, {"fill", write(r.fill)}};
    if (!r.note.empty()) item["note"] = r.note;
    return item;
  }
  json operator()(const Path& path) const {
    json steps = json::array();
    for (const Step& step : path.steps) {
      json one{static_cast<int>(step.kind), write(step.to)};
      if (step.kind == Step::Kind::curve) one.insert(one.end(), {write(step.first), write(step.second)});
      steps.push_back(one);
    }
    return {{"path", steps}, {"stroke", write(path.stroke)}, {"width", path.width}};
  }
  json operator()(const Text& text) const {
    return {{"text", text.text},
            {"at", {text.x, text.y}},
            {"size", text.size},
            {"paint", write(text.paint)},
            {"anchor", static_cast<int>(text.anchor)},
            {"direction", static_cast<int>(text.direction)},
            {"weight", static_cast<int>(text.weight)},
            {"limit", text.limit},
            {"overflow", static_cast<int>(text.overflow)}};
  }
  json operator()(const Grid& grid) const {
    json positions = json::array();
    for (const float position : grid.positions) positions.push_back(rounded(position));
    return {{"grid", {grid.x, grid.y, grid.cell, grid.gap}},
            {"rows", grid.rows},
            {"columns", grid.columns},
            {"positions", positions}};
  }
  json operator()(const Image& image) const {
    std::string pixels;
    for (const Rgb pixel : image.pixels) append_hex(pixels, pixel);
    return {{"image", {image.x, image.y, image.width, image.height}},
            {"rows", image.rows},
            {"columns", image.columns},
            {"pixels", pixels}};
  }
};

// Ill-formed UTF-8 becomes U+FFFD, as it is drawn.
std::string printed(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

int count_of(const json& value) {
  const auto count = files::whole_number(value, 0, std::numeric_limits<int>::max());
  if (!count) refuse("rows or columns that are no number from 0 to 2^31 - 1: " + value.dump());
  return static_cast<int>(*count);
}

void check_count(int rows, int columns, std::size_t count) {
  if (count != static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns))
    refuse("not rows x columns values");
}

Path read_path(const json& item) {
  Path path{.steps = {}, .stroke = read_paint(item.at("stroke")), .width = item.at("width")};
  for (const json& one : item.at("path")) {
    Step step{.kind = enum_of(one.at(0), Step::Kind::curve), .to = read_point(one.at(1))};
    if (step.kind == Step::Kind::curve) {
      step.first = read_point(one.at(2));
      step.second = read_point(one.at(3));
    }
    path.steps.push_back(step);
  }
  return path;
}

Text read_text(const json& item) {
  const Point at = read_point(item.at("at"));
  return {.x = at.x,
          .y = at.y,
          .text = item.at("text"),
          .size = item.at("size"),
          .paint = read_paint(item.at("paint")),
          .anchor = enum_of(item.at("anchor"), Anchor::end),
          .direction = enum_of(item.at("direction"), Direction::up),
          .weight = enum_of(item.at("weight"), Weight::bold),
          .limit = item.at("limit"),
          .overflow = enum_of(item.at("overflow"), Overflow::wrap)};
}

Item read_item(const json& item) {
  const auto number = [&](const char* list, std::size_t at) { return item.at(list).at(at).get<double>(); };
  if (item.contains("path")) return read_path(item);
  if (item.contains("text")) return read_text(item);
  if (item.contains("grid")) {
    Grid grid{.x = number("grid", 0),
              .y = number("grid", 1),
              .cell = number("grid", 2),
              .gap = number("grid", 3),
              .rows = count_of(item.at("rows")),
              .columns = count_of(item.at("columns")),
              .positions = {}};
    for (const json& position : item.at("positions"))
      grid.positions.push_back(static_cast<float>(position_of(position)));
    check_count(grid.rows, grid.columns, grid.positions.size());
    return grid;
  }
  if (item.contains("image")) {
    Image image{.x = number("image", 0),
                .y = number("image", 1),
                .width = number("image", 2),
                .height = number("image", 3),
                .rows = count_of(item.at("rows")),
                .columns = count_of(item.at("columns")),
                .pixels = colours_of(item.at("pixels"))};
    check_count(image.rows, image.columns, image.pixels.size());
    return image;
  }
  return Rectangle{.x = number("rectangle", 0),
                   .y = number("rectangle", 1),
                   .width = number("rectangle", 2),
                   .height = number("rectangle", 3),
                   .fill = read_paint(item.at("fill")),
                   .radius = number("rectangle", 4),
                   .note = item.value("note", "")};
}

}  // namespace

void save_drawing(const std::filesystem::path& path, const Drawing& drawing) {
  // An item a line, so that two versions of a picture can be compared.
  std::string text = "{\"width\":" + printed(drawing.width) + ",\"height\":" + printed(drawing.height) +
                     ",\"title\":" + printed(drawing.title) + ",\"items\":[";
  const char* separator = "\n";
  for (const Item& item : drawing.items) {
    text += separator + printed(std::visit(ItemWriter{}, item));
    separator = ",\n";
  }
  files::write_file(path, text + "\n]}\n");
}

Drawing load_drawing(const std::filesystem::path& path) {
  constexpr std::size_t kLimit = std::size_t{1} << 26;
  constexpr int kDepth = 8;
  const json file = files::read_json_object(path, kLimit, kDepth);
  try {
    Drawing drawing{.width = file.at("width"), .height = file.at("height"), .title = file.at("title")};
    for (const json& item : file.at("items")) drawing.items.push_back(read_item(item));
    return drawing;
  } catch (const json::exception& error) {
    throw FileError(path.string(), 0, std::string("no drawing: ") + error.what());
  }
}

}  // namespace fovea::inspect
