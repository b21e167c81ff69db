#include "text/pipeline/normalized.h"

#include <algorithm>

#include "fovea/core/error.h"

namespace fovea::text::pipeline {
namespace {

// Joins neighbouring parts as `behavior` says; what is left is what is kept.
std::vector<Part> kept_parts(std::span<const Part> parts, SplitBehavior behavior) {
  std::vector<Part> kept;
  bool before = false;  // whether the part before was a match; for merged_with_next the part behind
  switch (behavior) {
    case SplitBehavior::isolated:
      return {parts.begin(), parts.end()};
    case SplitBehavior::removed:
      std::copy_if(parts.begin(), parts.end(), std::back_inserter(kept),
                   [](const Part& part) { return !part.match; });
      return kept;
    case SplitBehavior::contiguous:
    case SplitBehavior::merged_with_previous:
      for (const Part& part : parts) {
        const bool joins =
            behavior == SplitBehavior::contiguous ? part.match == before : part.match && !before;
        if (joins && !kept.empty())
          kept.back().end = part.end;
        else
          kept.push_back(part);
        before = part.match;
      }
      return kept;
    case SplitBehavior::merged_with_next:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->match && !before && !kept.empty())
          kept.back().begin = part->begin;
        else
          kept.push_back(*part);
        before = part->match;
      }
      std::reverse(kept.begin(), kept.end());
  }
  return kept;
}

}  // namespace

void refuse_growth(const char* part, std::size_t most) {
  throw InvalidArgument(
      "Growth", part,
      std::string("a ") + part + " that makes at most " + std::to_string(most) + " bytes of this text",
      "more");
}

Normalized::Normalized(std::string_view source)
    : text_(source), places_(source.size()), most_(most_bytes(source.size())) {
  for (std::size_t at = 0; at < source.size();) {
    const auto bytes = static_cast<std::size_t>(decode_utf8(source, at).bytes);
    std::fill_n(places_.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                Place{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + bytes)});
    at += bytes;
  }
}

Place Normalized::place(std::size_t begin, std::size_t end) const {
  begin = std::min(begin, places_.size());
  end = std::min(end, places_.size());
  if (begin >= end) {
    const auto at = begin_ + static_cast<std::uint32_t>(begin);
    return {at, at};
  }
  return {places_[begin].begin, places_[end - 1].end};
}

void Normalized::transform(std::span<const Change> changes, std::size_t dropped) {
  std::string text;
  std::vector<Place> places;
  text.reserve(text_.size());
  places.reserve(places_.size());
  std::size_t at = 0;
  const auto pass = [&] {
    if (at < text_.size()) at += static_cast<std::size_t>(decode_utf8(text_, at).bytes);
  };
  for (std::size_t i = 0; i < dropped; ++i) pass();
  for (const Change& change : changes) {
    const std::size_t from = change.added > 0 ? at - 1 : at;  // at 0 the difference is past the end
    const Place place = from < places_.size() ? places_[from] : Place{begin_, begin_};
    for (std::int32_t i = change.added; i <= 0; ++i) pass();
    append_utf8(text, change.point);
    if (text.size() > most_) refuse_growth("normalizer", most_);
    places.resize(text.size(), place);
  }
  text_ = std::move(text);
  places_ = std::move(places);
}

void Normalized::prepend(std::string_view front) {
  if (text_.empty()) return;
  if (text_.size() + front.size() > most_) refuse_growth("normalizer", most_);
  places_.insert(places_.begin(), front.size(), places_.front());
  text_.insert(0, front);
}

void Normalized::replace(std::span<const Part> parts, std::string_view content) {
  std::string text;
  std::vector<Place> places;
  for (const auto& [begin, end, match] : parts) {
    if (text.size() + (match ? content.size() : end - begin) > most_) refuse_growth("normalizer", most_);
    if (match) {
      text += content;
      places.insert(places.end(), content.size(), end > 0 ? places_[end - 1] : Place{begin_, begin_});
    } else {
      text.append(text_, begin, end - begin);
      places.insert(places.end(), places_.begin() + static_cast<std::ptrdiff_t>(begin),
                    places_.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  text_ = std::move(text);
  places_ = std::move(places);
}

Normalized Normalized::slice(std::size_t begin, std::size_t end) const {
  Normalized piece;
  piece.text_ = text_.substr(begin, end - begin);
  piece.most_ = most_bytes(piece.text_.size());
  piece.places_.assign(places_.begin() + static_cast<std::ptrdiff_t>(begin),
                       places_.begin() + static_cast<std::ptrdiff_t>(end));
  piece.begin_ = piece.places_.empty() ? begin_ : piece.places_.front().begin;
  return piece;
}

std::vector<Normalized> Normalized::split(std::span<const Part> parts, SplitBehavior behavior) const {
  std::vector<Normalized> pieces;
  for (const Part& part : kept_parts(parts, behavior)) {
    if (part.begin < part.end) pieces.push_back(slice(part.begin, part.end));
  }
  return pieces;
}

}  // namespace fovea::text::pipeline
