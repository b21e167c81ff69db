#include "fovea/inspect/marked_text.h"

#include <algorithm>
#include <cmath>

#include "fovea/core/error.h"
#include "inspect/canvas.h"

namespace fovea::inspect {
namespace {

constexpr Rgb kPaper{255, 255, 255}, kInk{28, 30, 38}, kQuiet{112, 117, 130}, kFrame{213, 94, 0};
constexpr int kScale = 2, kMargin = 28;
constexpr int kPad = 7;  // between a word and the edge of its ground
constexpr int kGap = 4, kCaption = 36, kTextGap = 26, kTitle = 56;

struct Place {
  std::size_t word = 0;
  int x = 0, line = 0, width = 0;
};

int ground_height() {
  return text_height(kScale) + 2 * kPad;
}
// A line of words and, under it, the shares.
int line_height() {
  return ground_height() + text_height(1) + 8;
}

std::vector<Place> break_lines(const MarkedText& text, int width) {
  std::vector<Place> places;
  int x = 0, line = 0;
  for (std::size_t i = 0; i < text.words.size(); ++i) {
    const int taken = std::min(width, text_length(text.words[i], kScale) + 2 * kPad);
    if (x > 0 && x + taken > width) {
      x = 0;
      ++line;
    }
    places.push_back({i, x, line, taken});
    x += taken + kGap;
  }
  return places;
}

void check(const MarkedText& text) {
  const auto refuse = [](const char* argument, const std::string& expected, std::size_t got) {
    throw InvalidArgument("draw_marked_texts", argument, expected, std::to_string(got));
  };
  if (text.weights.size() != text.words.size())
    refuse("texts.weights", std::to_string(text.words.size()) + " weights, one a word", text.weights.size());
  if (text.who && *text.who >= text.words.size())
    refuse("texts.who", "below " + std::to_string(text.words.size()), *text.who);
}

void frame(Picture& picture, int x, int y, int width, int height) {
  constexpr int kThick = 3;
  fill(picture, x, y, width, kThick, kFrame);
  fill(picture, x, y + height - kThick, width, kThick, kFrame);
  fill(picture, x, y, kThick, height, kFrame);
  fill(picture, x + width - kThick, y, kThick, height, kFrame);
}

void draw_word(Picture& picture, const MarkedText& text, const Place& place, float largest, int y) {
  const float weight = text.weights[place.word];
  const double position = largest > 0.0f ? weight / largest : 0.0;
  const int x = kMargin + place.x;
  const Rgb ground = std::isfinite(weight) ? colour_of(position, Ground::light) : not_finite_colour;
  fill(picture, x, y, place.width, ground_height(), ground);
  if (text.who == place.word) frame(picture, x, y, place.width, ground_height());
  // The ramp is dark beyond its middle; letters turn white there.
  const bool dark = 2 * ground.red + 5 * ground.green + ground.blue < 8 * 128;
  draw_text(picture, {.x = x + kPad, .y = y + kPad, .scale = kScale, .colour = dark ? kPaper : kInk},
            fit_text(text.words[place.word], place.width - 2 * kPad, kScale));
  if (!(weight >= 0.1f)) return;
  const std::string share = std::to_string(static_cast<int>(std::lround(100.0 * weight)));
  draw_text(picture,
            {.x = x + (place.width - text_length(share, 1)) / 2,
             .y = y + ground_height() + 3,
             .scale = 1,
             .colour = kQuiet},
            share);
}

}  // namespace

Picture draw_marked_texts(const std::vector<MarkedText>& texts, const MarkedTextOptions& options) {
  if (options.width < 200)
    throw InvalidArgument("draw_marked_texts", "options.width", "at least 200",
                          std::to_string(options.width));
  const int width = options.width - 2 * kMargin;
  std::vector<std::vector<Place>> places;
  long height = 2L * kMargin + (options.title.empty() ? 0 : kTitle);
  for (const MarkedText& text : texts) {
    check(text);
    places.push_back(break_lines(text, width));
    const int lines = places.back().empty() ? 0 : places.back().back().line + 1;
    height += kCaption + static_cast<long>(lines) * line_height() + kTextGap;
  }
  Picture picture = blank_picture(options.width, height, kPaper);
  int y = kMargin;
  if (!options.title.empty()) {
    draw_text(picture, {.x = kMargin, .y = y, .scale = 3, .colour = kInk}, fit_text(options.title, width, 3));
    y += kTitle;
  }
  for (std::size_t t = 0; t < texts.size(); ++t) {
    draw_text(picture, {.x = kMargin, .y = y, .scale = kScale, .colour = kQuiet},
              fit_text(texts[t].caption, width, kScale));
    y += kCaption;
    float largest = 0.0f;
    for (const float weight : texts[t].weights) {
      if (std::isfinite(weight)) largest = std::max(largest, weight);
    }
    for (const Place& place : places[t])
      draw_word(picture, texts[t], place, largest, y + place.line * line_height());
    y += (places[t].empty() ? 0 : (places[t].back().line + 1) * line_height()) + kTextGap;
  }
  return picture;
}

}  // namespace fovea::inspect
