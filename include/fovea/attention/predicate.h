// Masks given by their answers: by a function of the site, a table of bytes, or lists of spans.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/attention/mask_definition.h"

namespace fovea {

/// The keys that one query of a predicate sees: as spans if there are few, else as one bit a key. A
/// checkerboard of 1,024 keys has 512 spans of 16 bytes; its bits take 128 bytes. Besides itself, a row takes
/// at most key_len / 8 bytes.
class KeyRow {
 public:
  KeyRow() = default;
  /// The keys, of `key_len`, whose byte is not 0. The bytes are `stride` apart; contiguous ones are read
  /// eight at a time.
  KeyRow(const std::uint8_t* visible, std::int64_t key_len, std::int64_t stride = 1);
  /// Spans inside [0, key_len), sorted, disjoint and not empty.
  KeyRow(const KeySpans& spans, std::int64_t key_len);

  bool sees(std::int64_t key) const noexcept;
  /// The exact spans, however many.
  KeySpans spans() const;
  /// Whether the row is stored as one bit a key.
  bool by_bits() const noexcept { return !bits_.empty(); }
  /// Bits of the keys [64·n, 64·(n + 1)), the lowest key lowest.
  std::uint64_t word(std::int64_t n) const noexcept;

 private:
  void keep(std::vector<std::uint64_t> bits, std::int64_t key_len);

  KeySpans spans_;                   // used if bits_ is empty
  std::vector<std::uint64_t> bits_;  // 64 keys a word
};

namespace predicate_detail {

// A function that `Predicate::Visible` does not take.
template <class F>
concept FunctionOfOther =
    (requires { &std::remove_cvref_t<F>::operator(); } ||
     std::is_function_v<std::remove_pointer_t<std::remove_cvref_t<F>>> ||
     mask_detail::HasCallOperator<std::remove_cvref_t<F>>)&&!mask_detail::FunctionOfSite<std::decay_t<F>>;

}  // namespace predicate_detail

/// A mask given by visible(site), which is called once for each site when the predicate is made. The answers
/// are stored, so that a call runs no user code. The text form is `predicate(NAME)`, which cannot be read
/// back.
class Predicate {
 public:
  using Visible = std::function<bool(const Site& site)>;
  /// Query positions [query_begin, query_end); queries at other positions see nothing. A batch of 1 serves
  /// every entry, 1 head every query head.
  struct Sites {
    std::int64_t batch = 1, heads = 1, query_begin = 0, query_end = 0, key_len = 0;
  };
  /// Distances in a table from one element to that of the next entry, head, query and key. 0: they share it.
  struct Strides {
    std::int64_t batch = 0, head = 0, query = 0, key = 1;
  };
  Predicate(std::string name, const Sites& sites, const Visible& visible);
  /// A function with other parameters or another result stops the compilation with a sentence that says so.
  template <class F>
  requires predicate_detail::FunctionOfOther<F> Predicate(std::string name, const Sites& sites, F&& visible);
  /// A table of bytes, which is read here and not stored. A site is visible if its byte is not 0. `visible`
  /// points to the byte of entry 0, head 0, query_begin and key 0. Strides may be negative.
  Predicate(std::string name, const Sites& sites, const std::uint8_t* visible, const Strides& strides);
  /// Sorted and disjoint spans: one list a position, for each head of each batch entry in turn.
  Predicate(std::string name, const Sites& sites, const std::vector<KeySpans>& rows);
  /// Rows of sites.key_len keys, in the same order. Not a constructor, because rows in braces would fit two
  /// of them.
  static Predicate of_rows(std::string name, const Sites& sites, std::vector<KeyRow> rows);

  const std::string& name() const noexcept { return name_; }
  const Sites& sites() const noexcept { return sites_; }
  /// The row of a query, or nullptr outside of the sites. Queries that share their elements share the row.
  const KeyRow* row(std::int64_t batch, std::int64_t head, std::int64_t query) const noexcept;
  /// Whether heads may see different keys.
  bool by_head() const noexcept { return row_step_.head != 0; }

 private:
  Predicate(std::string name, const Sites& sites);
  std::int64_t lay_out(const Strides& strides);

  std::string name_;
  Sites sites_;
  Strides row_step_;  // steps in rows_; its `key` has no meaning
  std::vector<KeyRow> rows_;
};

template <class F>
requires predicate_detail::FunctionOfOther<F> Predicate::Predicate(std::string, const Sites&, F&&) {
  using Function = std::decay_t<F>;
#define FOVEA_PREDICATE_RIGHT "; a right one is [](const Site& at) { return at.key <= at.query; }"
  constexpr bool takes = mask_detail::TakesSite<Function>, says = mask_detail::SaysOfSite<Function>;
  static_assert(
      takes,
      "Predicate: the function is called as f(const Site&), which this one can not be" FOVEA_PREDICATE_RIGHT);
  static_assert(!takes || says,
                "Predicate: the function does not return a truth value" FOVEA_PREDICATE_RIGHT);
  static_assert(
      !says || std::is_copy_constructible_v<Function>,
      "Predicate: the function can not be copied: capture a std::shared_ptr or a reference, the function "
      "is not kept");
#undef FOVEA_PREDICATE_RIGHT
}

/// The runs of keys whose byte is not 0, in `count` bytes that are `stride` apart.
KeySpans spans_of(const std::uint8_t* visible, std::int64_t count, std::int64_t stride = 1);

Mask to_mask(const Predicate& predicate);

}  // namespace fovea
