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

#include "fovea/attention/part_checks.h"

namespace fovea {

class MaskNode;  // mask_definition.h

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
/// parameters that make no sense. A type that reads the head has `bool by_head() const`. A type whose printed
/// text determines the mask completely has `bool text_is_all() const`. Two masks of such a type are equal if
/// their texts are equal, so one plan serves both. A type that is defined this way can read neither call-time
/// lengths nor other masks.
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
/// compilation with a sentence that says which member is missing (part_checks.h).
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

}  // namespace fovea
