// Masks: which keys a query may see. A mask answers for one site, and for a block of queries: which key spans
// *some* of them see, and which *all* of them see. Work skipped is derived from these spans and declared
// nowhere else.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/attention/mask_checks.h"
#include "fovea/attention/site.h"

namespace fovea {

struct AttentionShape;  // spec.h

/// Keys [begin, end).
struct KeySpan {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const KeySpan&, const KeySpan&) = default;
};
/// A list of spans, sorted by begin, disjoint, not touching, none empty. Up to six, which is what a sensible
/// mask has in a query block, stand in the object itself: a call then takes nothing from the heap. More go
/// there.
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
  /// Room for `count` spans, where they are known to be many.
  void reserve(std::size_t count) {
    if (count > near_.size()) far_.reserve(count);
  }
  void clear() noexcept { size_ = 0; }
  friend bool operator==(const KeySpans& a, const KeySpans& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<KeySpan, 6> near_{};
  std::vector<KeySpan> far_;  // all of them, once there are more
  std::size_t size_ = 0;
};

/// Queries at positions [query_begin, query_end) of one batch entry and query head, against keys [0,
/// key_len).
struct QueryBlock {
  std::int64_t batch = 0, head = 0, query_begin = 0, query_end = 0, key_len = 0;
  /// Lengths that arrived with the call, one a batch entry; for KeyLengths{} without lengths of its own.
  std::span<const std::int64_t> key_lengths = {};
};

/// `some` ⊇ the keys that at least one query of the block sees; `all` ⊆ the keys that every query of it sees.
/// Both are exact for a block of one query, and `some` and `all` are tight for the masks below taken alone.
struct BlockSpans {
  KeySpans some, all;
};

/// Keys between two diagonals: the query at position p sees [max(p + first, begin), min(p + last, end)).
struct KeyBand {
  std::int64_t first = 0, last = 0, begin = 0, end = 0;
};

/// What a mask type provides; immutable.
class MaskNode {
 public:
  virtual ~MaskNode() = default;
  virtual bool allows(const Site& site, const QueryBlock& block) const = 0;
  virtual BlockSpans spans(const QueryBlock& block) const = 0;
  /// What the block's queries see where that is a band, for kernels that would else ask for the spans of each
  /// query alone.
  virtual std::optional<KeyBand> band(const QueryBlock&) const { return std::nullopt; }
  /// The expression grammar's text, binding strength `parent` around it: parse(print(x)) == x.
  virtual std::string print(int parent) const = 0;
  /// Throws InvalidArgument(function "make_plan") where the mask cannot serve such a call.
  virtual void validate(const AttentionShape& shape) const = 0;
  /// True where the mask reads QueryBlock::key_lengths.
  virtual bool needs_key_lengths() const { return false; }
  /// True where the mask reads Site::head and QueryBlock::head: what it says of one head is not said of all.
  virtual bool by_head() const { return false; }
  /// 1 + that of the deepest part.
  virtual int depth() const { return 1; }
  /// True where the text form says all that there is to the mask, so that equal texts mean equal masks.
  virtual bool text_is_all() const { return false; }
};

/// Every key: the mask of plain attention.
struct Everything {};

/// Key j is visible to a query at position p iff j <= p.
struct Causal {};

/// Key j is visible to a query at p iff p - lookback <= j <= p + lookahead: counts *other* tokens, the
/// query's own position is always inside.
struct SlidingWindow {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t lookback = 0;
  std::int64_t lookahead = unlimited;
};

/// These positions are seen by every query and, as queries, see every key (Beltagy et al. 2020, arXiv
/// 2004.05150).
struct GlobalTokens {
  std::vector<std::int64_t> positions;
  GlobalTokens() = default;
  GlobalTokens(std::initializer_list<std::int64_t> list) : positions(list) {}
  explicit GlobalTokens(std::vector<std::int64_t> list) : positions(std::move(list)) {}
};

/// Key j of batch entry b is visible iff j < lengths[b]. Without lengths here, they arrive with each call.
struct KeyLengths {
  std::vector<std::int64_t> lengths;
};

/// Masks nest at most this deep (`&`, `|` and `~` throw InvalidArgument beyond): everything that walks one
/// recurses, and the stack is finite.
inline constexpr int deepest_mask = 1000;

class Mask;

/// A type that is a mask by itself, all in its header (streaming_sinks.h is one): `allows` for one pair,
/// `spans` for a block of queries, `print` for its text, and `validate`, which throws InvalidArgument for
/// parameters that make no sense. One that reads the head says so by `bool by_head() const`. For masks that
/// read neither call-time lengths nor other masks.
template <class T>
concept MaskDefinition = requires(const T& mask, const Site& site, const QueryBlock& block) {
  { mask.allows(site) } -> std::same_as<bool>;
  { mask.spans(block) } -> std::same_as<BlockSpans>;
  { mask.print() } -> std::same_as<std::string>;
  mask.validate();
};
template <MaskDefinition T>
Mask to_mask(const T& definition);

/// What has a to_mask (masks.h; yours, found by argument-dependent look-up) is a mask too.
template <class T>
concept HasToMask = requires(const T& mask) {
  { to_mask(mask) } -> std::same_as<Mask>;
};

/// What was meant as a mask and is none: it stands wherever a mask does, and there stops the compilation with
/// a sentence that says what it lacks (mask_checks.h).
template <class T>
concept IncompleteMask = !HasToMask<T> && !std::is_base_of_v<Mask, T> &&
                         (mask_detail::MeantAsMask<T> || mask_detail::BareFunction<T>);

/// A mask expression: a small immutable value, cheap to copy.
class Mask {
 public:
  Mask() : Mask(Everything{}) {}
  template <class T>
  requires(!std::is_base_of_v<Mask, T> && HasToMask<T>)
      Mask(const T& mask)  // NOLINT(google-explicit-constructor)
      : Mask(to_mask(mask)) {}
  template <IncompleteMask T>
  Mask(const T&) : Mask(Everything{}) {  // NOLINT(google-explicit-constructor)
    mask_detail::explain_mask<T>();
  }
  Mask(Everything);            // NOLINT(google-explicit-constructor)
  Mask(Causal);                // NOLINT(google-explicit-constructor)
  Mask(SlidingWindow window);  // NOLINT(google-explicit-constructor)
  Mask(GlobalTokens tokens);   // NOLINT(google-explicit-constructor)
  Mask(KeyLengths lengths);    // NOLINT(google-explicit-constructor)
  /// A mask type of your own. Throws InvalidArgument for nullptr, and below deepest_mask.
  explicit Mask(std::shared_ptr<const MaskNode> node);

  const MaskNode& node() const noexcept { return *node_; }
  const std::shared_ptr<const MaskNode>& shared() const noexcept { return node_; }

  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);
  friend Mask operator~(const Mask& a);
  /// True for copies of one mask, and for masks of equal texts where those say all there is to them. Two
  /// predicates made apart are never equal.
  friend bool operator==(const Mask& a, const Mask& b);

 private:
  std::shared_ptr<const MaskNode> node_;
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

   private:
    T mask_;
  };
  return Mask(std::make_shared<Node>(definition));
}

/// What may stand in a mask expression. `Causal{} & SlidingWindow{.lookback = 127}` needs no Mask around
/// either.
template <class T>
concept MaskLike = std::is_same_v<T, Mask> || std::is_same_v<T, Everything> || std::is_same_v<T, Causal> ||
    std::is_same_v<T, SlidingWindow> || std::is_same_v<T, GlobalTokens> || std::is_same_v<T, KeyLengths> ||
    HasToMask<T> || IncompleteMask<T>;

template <MaskLike A, MaskLike B>
requires(!std::is_same_v<A, Mask> || !std::is_same_v<B, Mask>) Mask operator&(const A& a, const B& b) {
  return Mask(a) & Mask(b);
}
template <MaskLike A, MaskLike B>
requires(!std::is_same_v<A, Mask> || !std::is_same_v<B, Mask>) Mask operator|(const A& a, const B& b) {
  return Mask(a) | Mask(b);
}
template <MaskLike A>
requires(!std::is_same_v<A, Mask>) Mask operator~(const A& a) {
  return ~Mask(a);
}

/// "causal & window(127,0)".
std::string to_string(const Mask& mask);

/// How a tile of queries × keys [begin, end) stands to the spans of its query block.
enum class TileClass : std::uint8_t { empty, partial, full };
TileClass classify(const BlockSpans& spans, std::int64_t begin, std::int64_t end);

// The algebra of spans, on sorted disjoint lists.
KeySpans intersect(const KeySpans& a, const KeySpans& b);
KeySpans unite(const KeySpans& a, const KeySpans& b);
/// [0, key_len) without `a`.
KeySpans complement(const KeySpans& a, std::int64_t key_len);

}  // namespace fovea
