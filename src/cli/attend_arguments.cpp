#include "cli/attend_arguments.h"

#include <algorithm>

namespace fovea::cli {
namespace {

using From = ArgumentSource::From;

std::string normalizer_name(const AttentionSpec& spec) {
  return std::visit([]<class N>(const N&) { return std::string(N::name); }, spec.normalizer);
}

// Finds what gives the arguments of one call.
class Sources {
 public:
  Sources(const AttendOptions& options, const AttentionSpec& spec)
      : o_(options), spec_(spec), declared_(declared_arguments(spec)) {
    check_flags();
    check_names();
    check_mods("--mod", o_.mods, spec_.mods);
    check_mods("--weight-mod", o_.weight_mods, spec_.weight_mods);
  }

  std::vector<ArgumentSource> all() const {
    std::vector<ArgumentSource> sources;
    for (const auto& [name, declaration] : declared_) {
      ArgumentSource source{.name = name, .declaration = declaration, .flag = {}, .path = {}};
      give(source);
      sources.push_back(std::move(source));
    }
    return sources;
  }

 private:
  // A list of mods of which `name` is an argument, the number of its mod there, and what the flags gave.
  struct InList {
    const char* flag = nullptr;
    std::size_t number = 0;
    const std::vector<NamedFile>* given = nullptr;
    const Mods* mods = nullptr;
    bool by_local() const { return number >= given->size(); }  // --local-p adds the last of each list
    const ModNode& node() const { return (*mods)[number].node(); }
    std::string called() const { return std::string(flag) + " " + node().print(); }
  };
  InList list_of(const std::string& name) const {
    InList in;
    if (name.starts_with("mods["))
      in = {"--mod", 0, &o_.mods, &spec_.mods};
    else if (name.starts_with("weight_mods["))
      in = {"--weight-mod", 0, &o_.weight_mods, &spec_.weight_mods};
    else
      return in;
    in.number = static_cast<std::size_t>(std::stoul(name.substr(name.find('[') + 1)));
    return in;
  }

  std::string part_of(const ArgumentFlag& flag) const {
    return flag.is_of_score() ? o_.score : normalizer_name(spec_);
  }
  // The flag for this argument of the score or normaliser of the call; null where it has none.
  const ArgumentFlag* flag_for(const std::string& name) const {
    const auto& flags = argument_flags();
    const auto found = std::find_if(flags.begin(), flags.end(), [&](const ArgumentFlag& flag) {
      return name == flag.argument && flag.serves(part_of(flag));
    });
    return found == flags.end() ? nullptr : &*found;
  }
  const std::string& path_of(const ArgumentFlag& flag) const {
    return o_.argument_files[static_cast<std::size_t>(&flag - argument_flags().data())];
  }

  void check_flags() const {
    for (const ArgumentFlag& flag : argument_flags()) {
      if (path_of(flag).empty() || flag.serves(part_of(flag))) continue;
      const std::string option = flag.is_of_score() ? "--score " : "--normalizer ";
      refuse(flag.flag, option + alternatives(flag.parts) + (flag.is_of_score() ? "" : " beside it"),
             option + (flag.is_of_score() ? o_.score : o_.normalizer));
    }
  }
  void check_names() const {
    for (std::size_t n = 0; n < o_.arguments.size(); ++n) {
      const std::string& name = o_.arguments[n].name;
      if (name.empty() || o_.arguments[n].file.empty())
        refuse("--argument", "NAME=FILE, such as score.W=w.npy", o_.arguments[n].text);
      std::string known;
      bool found = false;
      for (const DeclaredArgument& one : declared_) {
        known += (known.empty() ? "" : ", ") + one.name;
        found = found || one.name == name;
      }
      if (!found)
        refuse("--argument " + name, known.empty() ? "no argument: this spec has none" : "one of " + known,
               "an argument that this spec does not have");
      for (std::size_t before = 0; before < n; ++before) {
        if (o_.arguments[before].name == name) refuse("--argument " + name, "this argument once", "twice");
      }
    }
  }
  static void check_mods(const char* flag, const std::vector<NamedFile>& given, const Mods& mods) {
    for (std::size_t n = 0; n < given.size(); ++n) {
      const std::string& path = given[n].file;
      if (path.empty() && given[n].text.ends_with('='))
        refuse(std::string(flag) + " " + given[n].text, "a file behind the '='", "none");
      if (mods[n].node().arguments().empty() && !path.empty())
        refuse(std::string(flag) + " " + mods[n].node().print(), "no file", path);
    }
  }

  // The path of --argument; empty where it does not give this argument.
  std::string by_name(const std::string& name) const {
    for (const NamedFile& argument : o_.arguments)
      if (argument.name == name) return argument.file;
    return {};
  }
  void give(ArgumentSource& source) const {
    const InList in = list_of(source.name);
    const ArgumentFlag* flag = flag_for(source.name);
    std::string giver;
    if (in.flag) {
      source.flag = std::string(in.flag) + " (" + source.name + ")";
      giver = give_by_mod(source, in);
    } else if (flag && !path_of(*flag).empty()) {
      giver = source.flag = flag->flag;
      source.from = o_.score == "concat" && flag->is_of_score() && own_name(source.name) == "W" ? From::concat
                                                                                                : From::file;
      source.path = path_of(*flag);
    } else if (const ArgumentFlag* whole = flag_for("score.W");
               o_.score == "concat" && source.name == "score.U" && !path_of(*whole).empty()) {
      giver = source.flag = whole->flag;
      source.from = From::concat;
      source.path = path_of(*whole);
    }
    if (const std::string path = by_name(source.name); !path.empty()) {
      if (source.from != From::nothing)
        refuse("--argument " + source.name, "nothing, because " + giver + " gives its file", path);
      source.from = From::file;
      source.flag = "--argument " + source.name;
      source.path = path;
    }
    if (source.from != From::nothing) return;
    if (o_.score == "concat" && flag && own_name(source.name) == "W") refuse_missing(source, in, flag);
    if (source.declaration.start == ArgumentDeclaration::Start::computed)
      source.from = From::start;
    else if (source.declaration.absent == ArgumentDeclaration::Absent::refused)
      refuse_missing(source, in, flag);
    else
      source.flag = flag ? flag->flag : "--argument " + source.name;
  }
  // Returns the flag that gives the argument; empty where none does.
  std::string give_by_mod(ArgumentSource& source, const InList& in) const {
    if (in.by_local()) {
      source.from = From::centers;
      return "--local-p";
    }
    const std::string& path = (*in.given)[in.number].file;
    const bool forget = is_forget(in.node());
    if (path.empty() || (!forget && own_name(source.name) != in.node().arguments().front().name)) return {};
    source.from = forget ? From::log_forget : From::file;
    source.path = path;
    return in.flag;
  }
  static bool is_forget(const ModNode& node) { return node.print() == to_string(Mod(ForgetGate{})); }

  [[noreturn]] void refuse_missing(const ArgumentSource& source, const InList& in,
                                   const ArgumentFlag* flag) const {
    if (in.flag) {
      const std::vector<ArgumentDeclaration>& all = in.node().arguments();
      const std::string prefix = source.name.substr(0, source.name.size() - own_name(source.name).size());
      const bool others = std::any_of(all.begin(), all.end(), [&](const ArgumentDeclaration& argument) {
        return !by_name(prefix + argument.name).empty();
      });
      if (!others)
        refuse(in.called(), "=FILE with its " + (is_forget(in.node()) ? "log gates" : own_name(source.name)),
               "none");
    }
    const std::string part = source.name.starts_with("score.") ? " for --score " + o_.score
                             : in.flag                         ? " for " + in.called()
                                                               : " for --normalizer " + o_.normalizer;
    refuse(flag ? flag->flag : "--argument " + source.name, "a file" + part, "none");
  }

  const AttendOptions& o_;
  const AttentionSpec& spec_;
  std::vector<DeclaredArgument> declared_;
};

}  // namespace

bool ArgumentFlag::serves(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

std::span<const ArgumentFlag> argument_flags() {
  static const std::vector<ArgumentFlag> flags{
      {"--bilinear", "score.W", {"bilinear"}, ", s = k'Wq"},
      {"--additive-query", "score.W", {"additive", "coverage"}, ", s = v'tanh(Wq + Uk + b)"},
      {"--additive-key", "score.U", {"additive", "coverage"}},
      {"--additive-vector", "score.v", {"additive", "concat", "coverage"}},
      {"--additive-bias", "score.b", {"additive", "concat", "coverage"}},
      {"--coverage-vector", "score.w", {"coverage"}, ", s = v'tanh(Wq + Uk + b + w c)"},
      {"--concat-matrix", "score.W", {"concat"}, ", s = v'tanh(W[q; k])"},
      {"--low-rank-query", "score.W", {"low-rank"}, ", s = (Uk)'(Wq), with hidden for the rank"},
      {"--low-rank-key", "score.U", {"low-rank"}},
      {"--location", "score.W", {"location"}, ", s = Wq"},
      {"--sink", "normalizer.sink", {"sink"}, ", learned"},
      {"--transitions", "normalizer.transitions", {"chain"}, ", potentials of neighbours"},
  };
  return flags;
}

std::vector<ArgumentSource> argument_sources(const AttendOptions& options, const AttentionSpec& spec) {
  return Sources(options, spec).all();
}

std::string own_name(const std::string& argument) {
  return argument.substr(argument.rfind('.') + 1);
}

}  // namespace fovea::cli
