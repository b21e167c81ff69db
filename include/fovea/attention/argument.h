// Here are the parts of a spec as plain values: scores, mods, masks, normalisers, their arguments and their
// text form. Plans and calls, which compute them, are in plan/. Open spec.h first.
//
// Arguments are the tensors that the parts of a spec take with each call, such as the matrix of a bilinear
// score or the slopes of ALiBi. A part declares each of its arguments once: its name, its shape, the meaning
// of a call without it, and whether it is learned. This declaration drives the checks of a call, the
// gradients, the error texts, the Python package, the layers and the tests.
//
// A call gives an argument by its full name: the part, a point, the argument's own name. Parts are "score",
// "mods[0]", "normalizer" and "weight_mods[0]".
//
//   attend(plan,
//          {.query = q, .key = k, .value = v, .arguments = {{"score.W", W}, {"mods[0].slope", slopes}}},
//          {.output = output});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/arguments.h"

namespace fovea {

/// The sizes of a call that occur in shapes of arguments.
struct ArgumentSizes {
  std::int64_t batch = 0, num_query_heads = 0, query_len = 0, key_len = 0;
  std::int64_t query_dim = 0, key_dim = 0, hidden = 0;
};

/// One axis of an argument: a size of the call, or a number.
struct ArgumentAxis {
  enum class Fit : std::uint8_t {
    exact,
    or_one,   ///< 1 stands for "the same for all"
    at_least  ///< elements beyond the call's size are not read, and their gradient is 0
  };
  std::int64_t ArgumentSizes::*size = nullptr;  ///< nullptr: `number`
  std::int64_t number = 1;
  Fit fit = Fit::exact;

  std::int64_t of(const ArgumentSizes& sizes) const { return size ? sizes.*size : number; }
  friend bool operator==(const ArgumentAxis&, const ArgumentAxis&) = default;
};

/// The declaration of one argument by its part of the spec.
struct ArgumentDeclaration {
  /// The meaning of a call without the argument.
  enum class Absent : std::uint8_t {
    refused,
    zero,     ///< a bias of 0
    identity  ///< a matrix that changes nothing; its two sizes must be equal
  };
  enum class Layout : std::uint8_t { contiguous_rows, contiguous, any };
  /// The values with which a layer begins to learn the argument.
  enum class Start : std::uint8_t {
    told,   ///< the maker of the layer says: no default makes sense
    given,  ///< comes with each call, computed from the data: there is nothing to learn
    zero,
    one,
    number,   ///< `start_number`
    xavier,   ///< uniform, ±sqrt(6 / (rows + columns)); a vector counts as one row
    computed  ///< `start_values`
  };

  std::string name;  ///< "W"; the full name has the part in front
  std::vector<ArgumentAxis> axes;
  /// Where a file or an array may have fewer axes than these: the names of the axes that it then has, of
  /// "bhqk" (batch, heads, query_len, key_len). Its last axes are the last of them. "": it has all axes.
  std::string_view written = {};
  Absent absent = Absent::refused;
  Layout layout = Layout::contiguous_rows;
  bool by_head = false;  ///< may have an axis of num_query_heads before `axes`: one tensor a query head
  bool learned = true;   ///< false: it has no gradient
  bool finite = false;   ///< infinities and NaN are refused: the check of a call reads the elements
  Start start = Start::told;
  double start_number = 0.0;  ///< Start::number
  /// Start::computed: that many values, such as alibi_slopes.
  std::vector<double> (*start_values)(std::int64_t count) = nullptr;

  friend bool operator==(const ArgumentDeclaration&, const ArgumentDeclaration&) = default;
};

/// "[hidden, query_dim]" with the numbers of a call: "[8, 64]", "[2 or 1, 4 or 1, 1, 32]".
std::string shape_text(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes);
/// Whether a tensor of this shape fits. Makes no text and allocates nothing.
bool fits(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes, const Shape& shape);

/// `known` with its zeros filled in from `shape`. Used to check an argument before a call brings its lengths.
ArgumentSizes completed(const ArgumentDeclaration& declaration, ArgumentSizes known, const Shape& shape);

/// For an array of `rank` axes: the argument's axis that each of them stands for (`written`). Empty where the
/// array must have all axes, or has more than may be written.
std::optional<std::vector<int>> written_axes(const ArgumentDeclaration& declaration, int rank);

/// The same elements with all axes of the argument, where `given` has those of `written` alone: [heads]
/// slopes become [1, heads, 1, 1]. Any other tensor as it is.
Tensor with_all_axes(const ArgumentDeclaration& declaration, const Tensor& given);

/// The shape in which a layer keeps the argument: the sizes that are known, and 1 where that is allowed. A
/// size of 0 is unknown. None if the shape depends on an unknown size.
std::optional<Shape> start_shape(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes);
/// The values with which the argument starts, f32 or f64. An empty tensor where they are not the same for
/// every layer: Start::told, Start::given, Start::xavier. Throws InvalidArgument if another dtype is given.
Tensor start_value(const ArgumentDeclaration& declaration, const Shape& shape, DType dtype);

/// A declaration under its full name: "score.W", "mods[0].slope".
struct DeclaredArgument {
  std::string name;
  ArgumentDeclaration declaration;
};

}  // namespace fovea
