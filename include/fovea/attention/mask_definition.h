// What a mask type is made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/site.h"

namespace fovea {

struct AttentionShape;  // spec.h

/// Keys [begin, end).
struct KeySpan {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const KeySpan&, const KeySpan&) = default;
};
/// A list of spans: sorted by begin, disjoint, not touching, none empty. Up to six spans stand in the object
/// itself, so that a call allocates nothing; a sensible mask has no more in a query block. A longer list is
/// on the heap.
class KeySpans {
 public:
  KeySpans() = default;
  KeySpans(std::initializer_list<KeySpan> spans) {
    for (const KeySpan& span : spans) push_back(span);
  }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const KeySpan* data() const noexcept { return size_ > near_.size() ? far_.data() : near_.data(); }
  KeySpan* data() noexcept { return size_ > near_.size() ? far_.data() : near_.data(); }
  const KeySpan* begin() const noexcept { return data(); }
  const KeySpan* end() const noexcept { return data() + size_; }
  const KeySpan& operator[](std::size_t i) const noexcept { return data()[i]; }
  KeySpan& back() noexcept { return data()[size_ - 1]; }
  void push_back(const KeySpan& span) {
    if (size_ < near_.size()) {
      near_[size_++] = span;
      return;
    }
    if (size_ == near_.size()) far_.assign(near_.begin(), near_.end());
    far_.push_back(span);
    ++size_;
  }
  /// Reserves memory for `count` spans, if they are known to be many.
  void reserve(std::size_t count) {
    if (count > near_.size()) far_.reserve(count);
  }
  void clear() noexcept { size_ = 0; }
  friend bool operator==(const KeySpans& a, const KeySpans& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<KeySpan, 6> near_{};
  std::vector<KeySpan> far_;  // all spans, once there are more than near_ holds
  std::size_t size_ = 0;
};

/// Queries at positions [query_begin, query_end) of one batch entry and query head, against keys [0,
/// key_len).
struct QueryBlock {
  std::int64_t batch = 0, head = 0, query_begin = 0, query_end = 0, key_len = 0;
  /// The call's lengths, one a batch entry, for KeyLengths{} without lengths of its own.
  std::span<const std::int64_t> key_lengths = {};
};

/// `some` contains every key that at least one query of the block sees. Every query of the block sees all
/// keys of `all`. Both are exact for a block of one query. For each of the masks below, taken alone, both are
/// tight.
struct BlockSpans {
  KeySpans some, all;
};

/// Keys between two diagonals: the query at position p sees [max(p + first, begin), min(p + last, end)).
struct KeyBand {
  std::int64_t first = 0, last = 0, begin = 0, end = 0;
};

/// The interface of a mask type; immutable.
class MaskNode {
 public:
  virtual ~MaskNode() = default;
  virtual bool allows(const Site& site, const QueryBlock& block) const = 0;
  virtual BlockSpans spans(const QueryBlock& block) const = 0;
  /// The keys that the block's queries see, where they are a band. Without it, kernels ask for the spans of
  /// each query separately.
  virtual std::optional<KeyBand> band(const QueryBlock&) const { return std::nullopt; }
  /// The text in the expression grammar, with parentheses where the binding strength `parent` needs them:
  /// parse(print(x)) == x.
  virtual std::string print(int parent) const = 0;
  /// Throws InvalidArgument(function "make_plan") if the mask does not fit a call of this shape.
  virtual void validate(const AttentionShape& shape) const = 0;
  /// The keys that the mask has answers for: validate refuses a longer key_len.
  virtual std::int64_t most_keys() const { return std::numeric_limits<std::int64_t>::max(); }
  /// True where the mask reads QueryBlock::key_lengths.
  virtual bool needs_key_lengths() const { return false; }
  /// True where the mask reads Site::head and QueryBlock::head: its answer for one head does not hold for
  /// all.
  virtual bool by_head() const { return false; }
  /// 1 + the depth of the deepest part.
  virtual int depth() const { return 1; }
  /// True where the text form describes the mask completely, so that equal texts mean equal masks.
  virtual bool text_is_all() const { return false; }
};

template <MaskDefinition T>
Mask to_mask(const T& definition) {
  [[maybe_unused]] constexpr bool fits = mask_detail::explain_options<T>();
  class Node final : public MaskNode {
   public:
    explicit Node(const T& mask) : mask_(mask) { mask_.validate(); }
    bool allows(const Site& site, const QueryBlock&) const override { return mask_.allows(site); }
    BlockSpans spans(const QueryBlock& block) const override { return mask_.spans(block); }
    std::string print(int) const override { return mask_.print(); }
    void validate(const AttentionShape&) const override {}
    bool by_head() const override {
      if constexpr (requires { mask_.by_head(); }) return mask_.by_head();
      return false;
    }
    bool text_is_all() const override {
      if constexpr (requires { mask_.text_is_all(); }) return mask_.text_is_all();
      return false;
    }

   private:
    T mask_;
  };
  return Mask(std::make_shared<Node>(definition));
}

/// How many pairs of a tile are visible: none, some or all. The tile is one query block × keys [begin, end).
enum class TileClass : std::uint8_t { empty, partial, full };
TileClass classify(const BlockSpans& spans, std::int64_t begin, std::int64_t end);

// Operations on spans, as sorted disjoint lists.
KeySpans intersect(const KeySpans& a, const KeySpans& b);
KeySpans unite(const KeySpans& a, const KeySpans& b);
/// [0, key_len) without `a`.
KeySpans complement(const KeySpans& a, std::int64_t key_len);

}  // namespace fovea
