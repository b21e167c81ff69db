// The tensors of a folder under the names of our parameters.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "fovea/files/safetensors.h"
#include "fovea/files/weights.h"
#include "fovea/nn/module.h"
#include "models/family/row.h"

namespace fovea::models {

/// Gives a model that is made of a ParameterSet its values (ParameterSet::Source). Each tensor is checked
/// before memory for it is allocated.
class FamilyTensors {
 public:
  /// Whether values are copied, or stay uninitialised where shapes alone are to be checked. Their memory is
  /// then never touched, so the system does not provide it. `later`: values have no elements until `pack`.
  enum class Read : std::uint8_t { values, shapes, later };
  FamilyTensors(const files::WeightFile& file, const Family& family, const FamilyConfig& config,
                Read read = Read::values);

  /// The tensor of a parameter; nullptr if the file has none.
  const files::StoredTensor* stored(const std::string& parameter) const;
  bool has(const std::string& parameter) const { return stored(parameter) != nullptr; }
  /// Whether a tensor is a copy of another one, or follows from the config.
  bool is_copy(const files::StoredTensor& tensor) const;
  /// The value of a parameter in f32. The parts of a fused tensor are asked for in the order of the rules.
  /// Throws FileError for a tensor that is missing or has another shape, InvalidArgument for a parameter
  /// without a rule.
  Tensor take(const std::string& parameter, const Shape& shape);
  nn::ParameterSet::Source source();
  /// After Read::later: packs each matrix that layers multiply by, and gives the other parameters their
  /// values. Tables keep the file mapped, and each of their rows is read when it is asked for. So no copy in
  /// f32 of either is ever in memory.
  void pack(nn::ParameterSet& parameters, autograd::WeightType type) const;
  /// Throws FileError for a tensor that was not taken, or not to its end, unless the family does without it.
  void check_all_taken() const;

 private:
  std::string name_of(const std::string& parameter) const;
  /// Whether it is the table of one side of a translator, with other numbers than the table of both.
  bool is_table_of_one_side(const files::StoredTensor& tensor) const;
  const files::StoredTensor* find(const std::string& theirs) const;

  const files::WeightFile& file_;
  const Family& family_;
  const FamilyConfig& config_;
  Read read_;
  bool prefixed_ = true;
  struct Rows {
    std::int64_t taken = 0, whole = 0;
  };
  std::map<std::string, Rows, std::less<>> taken_;  // by the name in the file
  // Where the elements of a parameter are.
  struct Place {
    const files::StoredTensor* tensor = nullptr;
    TensorRule::Layout layout = TensorRule::Layout::same;
    Shape shape;                        // of the parameter
    std::int64_t first = 0, whole = 0;  // its first row in the tensor, and all rows of that
  };
  void copy(const Place& place, float* to) const;
  /// Rows [first, first + count) of a matrix.
  void copy_matrix_rows(const Place& place, std::int64_t first, std::int64_t count, float* to) const;
  std::map<std::string, Place, std::less<>> later_;  // by the name of the parameter
};

/// The other way: the parameters of a model as the family's tensors. Throws InvalidArgument for a parameter
/// without a rule.
files::TensorFile family_tensors(const Family& family, const FamilyConfig& config,
                                 const nn::ParameterSet& parameters);

/// The name of a parameter's tensor in a file. Throws InvalidArgument for a parameter without a rule.
std::string name_in_family(const Family& family, const FamilyConfig& config, const std::string& parameter);

/// Whether `text` is `pattern`, in which each `*` stands for any text.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace fovea::models
