// The interface behind a mod.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/mod.h"

namespace fovea {

template <class T>
struct ModCode;  // make_mod.h
enum class ModIsa : std::uint8_t { any, avx2, avx512 };

inline constexpr int max_mod_arguments = 4;

/// The declaration of a mod's argument: [batch or 1, heads or 1, query_len or 1, key_len or 1]. Only the axes
/// in `longer`, a literal with letters of "bhqk", may be longer than 1. The caller may change the result.
ArgumentDeclaration mod_argument(std::string name, std::string_view longer = "bhqk");
/// The same for a table [batch or 1, heads or 1, 1, entries] that the mod looks up by distance; with
/// `by_query` it has one row a query, [batch or 1, heads or 1, query_len or 1, entries].
ArgumentDeclaration mod_table(std::string name, std::int64_t entries, bool by_query = false);

/// The interface of a mod; immutable.
class ModNode {
 public:
  virtual ~ModNode() = default;
  virtual ModCode<float> code_f32(ModIsa isa) const = 0;
  virtual ModCode<double> code_f64(ModIsa isa) const = 0;
  /// The pointer that the functions get as `mod`.
  virtual const void* self() const = 0;
  /// "softcap(50)".
  virtual std::string print() const = 0;
  /// Four axes each, in the order of the function's arguments.
  virtual const std::vector<ArgumentDeclaration>& arguments() const = 0;
  /// True where the type, the text and the arguments describe the mod completely, so that mods that agree in
  /// them are equal.
  virtual bool text_is_all() const { return false; }
  /// Where the mod's one argument is a table (mod_table): its number of entries. 0: there is no table.
  virtual std::int64_t entries() const { return 0; }
  /// True where the table has one row a query.
  bool table_by_query() const { return entries() > 0 && arguments().front().axes[2].size != nullptr; }
  /// True where the mod hides keys by scores of -infinity. A later mod could make finite scores of them, so
  /// only mods that also hide keys may come after it.
  virtual bool hides() const { return false; }
  /// The entry of the table for distance = query - key.
  virtual std::int64_t entry(std::int64_t distance) const {
    static_cast<void>(distance);
    return 0;
  }
};

}  // namespace fovea
