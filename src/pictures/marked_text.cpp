#include "fovea/pictures/marked_text.h"

#include <algorithm>
#include <cmath>

#include "fovea/core/error.h"
#include "pictures/parts.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Anchor;
using inspect::Drawing;
using inspect::Rectangle;
using inspect::Text;
using inspect::Tone;

constexpr double kWord = 14, kShare = 10.5, kCaptionSize = 13;
constexpr double kPad = 4;  // between a word and the edge of its ground
constexpr double kGap = 2, kGround = 22, kLine = kGround + 18, kCaption = 20, kTextGap = 12;

struct Place {
  std::size_t word = 0;
  double x = 0, width = 0;
  int line = 0;
};

std::vector<Place> break_lines(const MarkedText& text, double width) {
  std::vector<Place> places;
  double x = 0;
  int line = 0;
  for (std::size_t i = 0; i < text.words.size(); ++i) {
    const double taken = std::min(width, std::ceil(text_width(text.words[i], kWord)) + 2 * kPad);
    if (x > 0 && x + taken > width) {
      x = 0;
      ++line;
    }
    places.push_back({i, x, taken, line});
    x += taken + kGap;
  }
  return places;
}

void check(const MarkedText& text) {
  const auto refuse = [](const char* argument, const std::string& expected, std::size_t got) {
    throw InvalidArgument("draw_marked_texts", argument, expected, std::to_string(got));
  };
  if (text.weights.size() != text.words.size())
    refuse("texts.weights", std::to_string(text.words.size()) + " weights, one for each word",
           text.weights.size());
  if (text.who && *text.who >= text.words.size())
    refuse("texts.who", "below " + std::to_string(text.words.size()), *text.who);
}

void put_word(Drawing& drawing, const MarkedText& text, const Place& place, const Scale& scale, double y) {
  const float weight = text.weights[place.word];
  const double position = position_of(weight, scale), x = kMargin + place.x;
  if (text.who == place.word) {
    constexpr double kThick = 2;
    drawing.items.push_back(Rectangle{.x = x - kThick,
                                      .y = y - kThick,
                                      .width = place.width + 2 * kThick,
                                      .height = kGround + 2 * kThick,
                                      .fill = {Tone::accent},
                                      .radius = 3 + kThick});
  }
  drawing.items.push_back(Rectangle{.x = x,
                                    .y = y,
                                    .width = place.width,
                                    .height = kGround,
                                    .fill = {inspect::OnRamp{position}},
                                    .radius = 3});
  drawing.items.push_back(Text{.x = x + place.width / 2,
                               .y = base_line(y + kGround / 2, kWord),
                               .text = text.words[place.word],
                               .size = kWord,
                               .paint = {inspect::TextOnRamp{position}},
                               .anchor = Anchor::middle,
                               .limit = place.width - 2 * kPad});
  if (!(weight >= 0.1F)) return;
  drawing.items.push_back(Text{.x = x + place.width / 2,
                               .y = y + kGround + kShare + 2,
                               .text = std::to_string(std::lround(100.0 * weight)),
                               .size = kShare,
                               .paint = {Tone::quiet},
                               .anchor = Anchor::middle});
}

}  // namespace

Drawing draw_marked_texts(const std::vector<MarkedText>& texts, const MarkedTextOptions& options) {
  if (options.width < 100)
    throw InvalidArgument("draw_marked_texts", "options.width", "at least 100",
                          std::to_string(options.width));
  const double width = options.width - 2 * kMargin;
  Drawing drawing{.width = static_cast<double>(options.width)};
  double y = put_title(drawing, options.title);
  for (const MarkedText& text : texts) {
    check(text);
    drawing.items.push_back(Text{.x = kMargin,
                                 .y = y + kCaptionSize,
                                 .text = text.caption,
                                 .size = kCaptionSize,
                                 .paint = {Tone::quiet},
                                 .limit = width});
    y += kCaption;
    const Scale scale = scale_of(text.weights);
    const std::vector<Place> places = break_lines(text, width);
    for (const Place& place : places) put_word(drawing, text, place, scale, y + place.line * kLine);
    y += (places.empty() ? 0 : (places.back().line + 1) * kLine) + kTextGap;
  }
  drawing.height = y + kMargin - (texts.empty() ? 0 : kTextGap);
  return drawing;
}

}  // namespace fovea::pictures
