#include "cli/attend_mods.h"

#include <fmt/format.h>

#include "fovea/files/npy.h"
#include "fovea/mechanisms/forget.h"
#include "fovea/mechanisms/local.h"

namespace fovea::cli {
namespace {

// One of the two lists of mods, to which mods are added.
struct ModList {
  const char *flag, *name;
  Mods& mods;
  std::vector<ModArgument>& arguments;

  std::string argument_name(const std::string& argument) const {
    return fmt::format("{}[{}].{}", name, mods.size() - 1, argument);
  }
};

// Reshapes an argument of fewer than four axes: [heads] slopes, a table [heads, buckets], a bias [query_len,
// key_len] or [heads, query_len, key_len].
Tensor four_axes(const ModNode& node, const Tensor& given) {
  const auto one = [&](int axis) { return given.rank() > axis ? given.size(axis) : 1; };
  switch (given.rank()) {
    case 1:
      return given.reshape(node.entries() > 0 ? Shape{1, 1, 1, one(0)} : Shape{1, one(0), 1, 1});
    case 2:
      return given.reshape(node.entries() > 0 ? Shape{1, one(0), 1, one(1)} : Shape{1, 1, one(0), one(1)});
    case 3:
      return given.reshape({1, one(0), one(1), one(2)});
    default:
      return given;
  }
}

// The slopes of its paper, for "alibi" without a file.
Tensor default_slopes(std::int64_t heads, DType dtype) {
  Tensor slopes(dtype, {heads});
  const std::vector<double> values = alibi_slopes(heads);
  for (std::size_t h = 0; h < values.size(); ++h) {
    if (dtype == DType::f64)
      slopes.data<double>()[h] = values[h];
    else
      slopes.data<float>()[h] = static_cast<float>(values[h]);
  }
  return slopes;
}

// Makes both arguments of the mod of log gates [batch, heads, key_len].
void read_forget(const ModList& list, const AttendCall& call, const std::string& path) {
  using Gradient = ModArgument::Gradient;
  const Tensor gates = files::read_npy(path);
  if (gates.rank() != 3 || gates.size(2) != call.shape.key_len)
    refuse(std::string(list.flag) + " forget",
           fmt::format("log gates [batch, heads, {}]", call.shape.key_len), to_string(gates.shape()));
  try {
    const Tensor sums = forget_sums(gates);
    const Tensor queries = forget_queries(sums, call.shape.query_len, call.query_offsets);
    list.arguments.push_back({queries, queries, Gradient::log_forget, list.argument_name("query"),
                              list.argument_name("log_forget"), gates.shape()});
    list.arguments.push_back({sums, sums, Gradient::none, list.argument_name("key"), "", {}});
  } catch (const InvalidArgument& error) {
    refuse(std::string(list.flag) + " forget", error.expected(), error.got());
  }
}

void read_mod(const ModList& list, const AttendOptions& o, const AttendCall& call, const std::string& text) {
  auto [name, path] = split_mod(text);
  list.mods.push_back(parse_flag(list.flag, parse_mod, name));
  const ModNode& node = list.mods.back().node();
  const std::string printed = node.print();
  if (!node.arguments().empty()) {
    const std::string full_name = list.argument_name(node.arguments()[0]),
                      file = file_of_argument(o, full_name);
    if (!file.empty() && !path.empty())
      refuse("--argument " + full_name, std::string("nothing, because ") + list.flag + " gives its file",
             file);
    if (path.empty()) path = file;
  }
  const bool has_default = printed == "alibi", forget = printed == "forget";
  if (node.arguments().empty() != path.empty() && !(has_default && path.empty())) {
    refuse(std::string(list.flag) + " " + printed,
           node.arguments().empty() ? "no file"
                                    : "=FILE with its " + (forget ? "log gates" : node.arguments()[0]),
           path.empty() ? "none" : path);
  }
  if (forget) return read_forget(list, call, path);
  if (node.arguments().empty()) return;
  const Tensor given =
      path.empty() ? default_slopes(call.shape.num_query_heads, call.query.dtype()) : files::read_npy(path);
  const Tensor argument = four_axes(node, given);
  const std::string full_name = list.argument_name(node.arguments()[0]);
  list.arguments.push_back(
      {argument, argument, ModArgument::Gradient::own, full_name, full_name, given.shape()});
}

// Computes the centers, and adds the window around them as the last mod and the Gaussian as the last weight
// mod.
void read_local(const AttendOptions& o, AttendCall& call, Executor* executor) {
  using Gradient = ModArgument::Gradient;
  call.local_W = files::read_npy(o.local_query);
  call.local_v = files::read_npy(o.local_vector);
  const Tensor centers = local_centers(
      {.query = call.query, .W = call.local_W, .v = call.local_v, .key_len = call.shape.key_len},
      {.executor = executor});
  call.spec.mods.push_back(LocalWindow{*o.local_reach});
  call.spec.weight_mods.push_back(LocalGaussian{*o.local_reach / 2});
  const auto center_of = [](const char* list, const Mods& mods) {
    return fmt::format("{}[{}].center", list, mods.size() - 1);
  };
  call.mods.push_back({centers, centers, Gradient::none, center_of("mods", call.spec.mods), "", {}});
  call.weight_mods.push_back({centers, centers, Gradient::local_center,
                              center_of("weight_mods", call.spec.weight_mods), "", centers.shape()});
}

}  // namespace

void read_mods(const AttendOptions& o, AttendCall& call, Executor* executor) {
  const ModList mods{"--mod", "mods", call.spec.mods, call.mods},
      weight_mods{"--weight-mod", "weight_mods", call.spec.weight_mods, call.weight_mods};
  for (const std::string& text : o.mods) read_mod(mods, o, call, text);
  for (const std::string& text : o.weight_mods) read_mod(weight_mods, o, call, text);
  if (o.local_reach) read_local(o, call, executor);
  for (const auto* list : {&call.mods, &call.weight_mods}) {
    for (const ModArgument& argument : *list) call.inputs.arguments.set(argument.argument, argument.view);
  }
}

}  // namespace fovea::cli
