#include "fovea/text/spans.h"

#include <algorithm>

#include "fovea/core/error.h"

namespace fovea::text {

std::vector<Span> spans_of(std::span<const std::string> tags) {
  std::vector<Span> spans;
  bool open = false;  // the last span may go on with the next word
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const std::string& tag = tags[i];
    if (tag == "O") {
      open = false;
      continue;
    }
    const bool known =
        tag.size() > 2 && tag[1] == '-' && (tag[0] == 'B' || tag[0] == 'I' || tag[0] == 'E' || tag[0] == 'S');
    if (!known) throw InvalidArgument("spans_of", "tags", "O, or B-, I-, E-, S- with a type", tag);
    const std::string type = tag.substr(2);
    const bool goes_on = open && (tag[0] == 'I' || tag[0] == 'E') && spans.back().type == type;
    if (goes_on) {
      spans.back().end = i + 1;
    } else {
      spans.push_back({i, i + 1, type});
    }
    open = tag[0] == 'B' || tag[0] == 'I';
  }
  return spans;
}

std::vector<std::string> tags_of(std::span<const Span> spans, std::size_t words) {
  std::vector<std::string> tags(words, "O");
  for (const Span& span : spans) {
    const auto refuse = [&](const char* expected) {
      throw InvalidArgument("tags_of", "spans", expected,
                            std::to_string(span.begin) + " to " + std::to_string(span.end));
    };
    if (span.begin >= span.end || span.end > words) refuse("not empty, inside the words");
    for (std::size_t i = span.begin; i < span.end; ++i) {
      if (tags[i] != "O") refuse("spans that do not overlap");
      tags[i] = (i == span.begin ? "B-" : "I-") + span.type;
    }
  }
  return tags;
}

double SpanScore::precision() const noexcept {
  return proposed == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(proposed);
}
double SpanScore::recall() const noexcept {
  return gold == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(gold);
}
double SpanScore::f1() const noexcept {
  return correct == 0 ? 0.0 : 2.0 * static_cast<double>(correct) / static_cast<double>(proposed + gold);
}

void SpanScore::add(std::span<const Span> proposed_spans, std::span<const Span> gold_spans) {
  proposed += static_cast<std::int64_t>(proposed_spans.size());
  gold += static_cast<std::int64_t>(gold_spans.size());
  for (const Span& span : proposed_spans)
    correct += std::find(gold_spans.begin(), gold_spans.end(), span) != gold_spans.end();
}

}  // namespace fovea::text
