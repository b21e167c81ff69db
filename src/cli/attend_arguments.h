// The arguments of the engine in `fovea attend`: the flags that give them, and where each argument of a spec
// comes from. The declarations of the spec are the only list of arguments; a flag is another name for one.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/attend_options.h"
#include "fovea/attention/argument.h"
#include "fovea/attention/mod_node.h"

namespace fovea::cli {

/// A flag that names the file of an argument: a short form of --argument.
struct ArgumentFlag {
  const char* flag;      ///< "--additive-query"
  const char* argument;  ///< "score.W"
  /// The scores, or the normalisers, with which the flag has a meaning, as --score or --normalizer names
  /// them.
  std::vector<std::string_view> parts;
  const char* formula = "";  ///< of these parts, or what the argument is; after its name and shape in --help

  bool is_of_score() const { return std::string_view(argument).starts_with("score."); }
  bool serves(std::string_view part) const;
};
/// In the order of --help. AttendOptions::argument_files has a path for each.
std::span<const ArgumentFlag> argument_flags();

/// One argument that the spec declares, and what gives it.
struct ArgumentSource {
  enum class From : std::uint8_t {
    nothing,     ///< it may be absent
    file,        ///< `path`
    start,       ///< the values with which a layer would start it
    concat,      ///< a part of the matrix of the concat score, `path`
    log_forget,  ///< log gates, `path`
    centers      ///< computed by --local-p
  };
  std::string name;  ///< the engine's: "mods[0].slope"
  ArgumentDeclaration declaration;
  From from = From::nothing;
  std::string flag;  ///< what an error of the engine about this argument calls it
  std::string path;
};

/// The sources of all arguments of the spec, in the order of declared_arguments(spec). Throws InvalidArgument
/// that names the flag of an argument which is missing, which is given twice, or which the spec does not
/// have. Reads no file.
std::vector<ArgumentSource> argument_sources(const AttendOptions& options, const AttentionSpec& spec);

/// The last part of an argument's name: "slope" of "mods[0].slope".
std::string own_name(const std::string& argument);

/// The names of the algebra for --help, from their definitions: "scaled-dot, dot, ..., concat".
std::string names_of_scores();
/// "softcap(CAP), ..., alibi[=SLOPE.npy], ..."
std::string names_of_mods();
std::string names_of_masks();
/// "softmax, ..., entmax(ALPHA), ..."
std::string names_of_normalizers();
/// "score.W [hidden, query_dim] of additive or coverage, s = ...": the shape is the declaration's. Throws
/// std::logic_error if one of the flag's parts declares no such argument, or one of another shape.
std::string help_of(const ArgumentFlag& flag);
/// "additive, concat or coverage".
std::string alternatives(const std::vector<std::string_view>& names);
/// The arguments of scores and normalisers that only --argument gives: "score.temperature, ..."
std::string names_without_flags();

}  // namespace fovea::cli
