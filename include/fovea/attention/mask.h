// Masks say which keys a query may see. A mask answers for one site. For a block of queries it gives the key
// spans that *some* of them see, and the key spans that *all* of them see. Kernels skip work by these spans
// alone.
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

/// Every key: the mask of plain attention.
struct Everything {};

/// Key j is visible to a query at position p iff j <= p.
struct Causal {};

/// Key j is visible to a query at p iff p - lookback <= j <= p + lookahead. Both count *other* tokens: the
/// query's own position is always inside.
struct SlidingWindow {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t lookback = 0;
  std::int64_t lookahead = unlimited;
};

/// Every query sees these positions, and a query at one of them sees every key (Beltagy et al. 2020, arXiv
/// 2004.05150).
struct GlobalTokens {
  std::vector<std::int64_t> positions;
  GlobalTokens() = default;
  GlobalTokens(std::initializer_list<std::int64_t> list) : positions(list) {}
  explicit GlobalTokens(std::vector<std::int64_t> list) : positions(std::move(list)) {}
};

/// Key j of batch entry b is visible iff j < lengths[b]. Without `lengths`, each call brings them.
struct KeyLengths {
  std::vector<std::int64_t> lengths;
};

/// The deepest nesting of masks; `&`, `|` and `~` throw InvalidArgument beyond it. All code that walks a mask
/// recurses, and the stack is finite.
inline constexpr int deepest_mask = 1000;

class Mask;

/// A type that defines a mask entirely in its header, as streaming_sinks.h does. `allows` answers for one
/// pair, `spans` for a block of queries, and `print` gives the text. `validate` throws InvalidArgument for
/// parameters that make no sense. A type that reads the head has `bool by_head() const`. Such a mask can read
/// neither call-time lengths nor other masks.
template <class T>
concept MaskDefinition = requires(const T& mask, const Site& site, const QueryBlock& block) {
  { mask.allows(site) } -> std::same_as<bool>;
  { mask.spans(block) } -> std::same_as<BlockSpans>;
  { mask.print() } -> std::same_as<std::string>;
  mask.validate();
};
template <MaskDefinition T>
Mask to_mask(const T& definition);

/// A type with a to_mask is a mask too: those of masks.h, and yours, found by argument-dependent look-up.
template <class T>
concept HasToMask = requires(const T& mask) {
  { to_mask(mask) } -> std::same_as<Mask>;
};

/// A type that was meant as a mask but is incomplete. It is accepted wherever a mask is, and then stops the
/// compilation with a sentence that says which member is missing (mask_checks.h).
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
  /// A mask type of your own. Throws InvalidArgument for nullptr and for masks nested deeper than
  /// deepest_mask.
  explicit Mask(std::shared_ptr<const MaskNode> node);

  const MaskNode& node() const noexcept { return *node_; }
  const std::shared_ptr<const MaskNode>& shared() const noexcept { return node_; }

  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);
  friend Mask operator~(const Mask& a);
  /// True for copies of one mask, and for masks with equal texts where the texts describe them completely.
  /// Two predicates made separately are never equal.
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

/// Types that an operator of a mask expression accepts. `Causal{} & SlidingWindow{.lookback = 127}` needs no
/// Mask around either.
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

/// How many pairs of a tile are visible: none, some or all. The tile is one query block × keys [begin, end).
enum class TileClass : std::uint8_t { empty, partial, full };
TileClass classify(const BlockSpans& spans, std::int64_t begin, std::int64_t end);

// Operations on spans, as sorted disjoint lists.
KeySpans intersect(const KeySpans& a, const KeySpans& b);
KeySpans unite(const KeySpans& a, const KeySpans& b);
/// [0, key_len) without `a`.
KeySpans complement(const KeySpans& a, std::int64_t key_len);

}  // namespace fovea
