#include "cli/attend_options.h"

#include "cli/attend_arguments.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"

namespace fovea::cli {
namespace {

// Adds options to one group of --help.
class Group {
 public:
  using Names = std::initializer_list<const char*>;
  Group(Command command, AttendOptions& options, std::string name)
      : command_(command), options_(options), name_(std::move(name)) {}

  /// `names`: what the engine's errors call the value.
  template <class T>
  Option add(const std::string& flag, T& to, const std::string& help, Names names = {}) {
    for (const char* name : names) options_.engine_names.emplace_back(name, flag);
    return command_.add_option(flag, to, help).group(name_);
  }
  /// An option that names an input file.
  Option file(const std::string& flag, std::string& to, const std::string& help, Names names = {}) {
    options_.inputs.push_back(&to);
    return add(flag, to, help, names).type_name("FILE").check(file_name());
  }
  /// The flags of arguments of scores, or of normalisers.
  enum class Of : std::uint8_t { scores, normalizers };
  void arguments(Of of) {
    const auto flags = argument_flags();
    for (std::size_t n = 0; n < flags.size(); ++n) {
      if (flags[n].is_of_score() == (of == Of::scores))
        file(flags[n].flag, options_.argument_files[n], help_of(flags[n]));
    }
  }
  /// An option with names and files that may be given more than once.
  Option repeated(const std::string& flag, std::vector<NamedFile>& to, const std::string& help,
                  const char* type, Names names = {}) {
    for (const char* name : names) options_.engine_names.emplace_back(name, flag);
    const auto take = [&to](const std::vector<std::string>& texts) {
      for (const std::string& text : texts) to.emplace_back(text);
    };
    return command_.add_option_function(flag, take, help)
        .group(name_)
        .one_argument_each()
        .type_name(type)
        .default_text("");
  }
  Option numbers(const std::string& flag, std::vector<std::int64_t>& to, const std::string& help,
                 Names names = {}) {
    const auto not_empty = [](const std::string& text) {
      return text.empty() ? std::string("expected numbers with commas between them, got nothing")
                          : std::string();
    };
    return add(flag, to, help, names)
        .delimiter(',')
        .one_argument_each()
        .type_name("N,...")
        .default_text("")
        .check(Check(not_empty));
  }

 private:
  Command command_;
  AttendOptions& options_;
  std::string name_;
};

void add_operands(Command command, AttendOptions& o) {
  Group group(command, o, "Operands (.npy, f32 or f64)");
  group.file("--query", o.query, "[batch, heads, query_len, head_dim]", {"query", "query_content"})
      .required();
  group.file("--key", o.key, "[batch, kv_heads, key_len, key_dim]; none with --score location",
             {"key", "cache", "shape.key_dim", "shape.num_kv_heads"});
  group.file("--value", o.value, "[batch, kv_heads, key_len, value_dim]; none: weights alone", {"value"});
  group.add("--rope", o.rope,
            "turn query and key by their positions: rope(ROTARY_DIM,base=BASE,interleaved,SCALING), SCALING "
            "linear(F), ntk(F), dynamic(F,POSITIONS), yarn(F,POSITIONS), llama3(F,LOW,HIGH,POSITIONS), "
            "longrope(POSITIONS,short(F,...),long(F,...))");
  group.numbers("--query-offset", o.query_offsets,
                "position of query row 0, or one for each batch entry; default key_len - query_len",
                {"query_offset", "query_offsets"});
  group.numbers(
      "--query-starts", o.query_starts,
      "a packed batch, [1, heads, rows of all entries, dim]: entry e has the query rows from number e "
      "of this list to the next; from 0 to the number of rows. Each entry has its own positions, and "
      "batch above and below stands for the entries",
      {"query_starts"});
  group.numbers("--key-starts", o.key_starts, "the same of the rows of --key and --value", {"key_starts"});
}

void add_score(Command command, AttendOptions& o) {
  Group group(command, o, "Score");
  group.add("--score", o.score, names_of_scores() + "; coverage: the weights of earlier queries", {"score"});
  group.add("--scale", o.scale, "multiplies the score; default 1/sqrt(head_dim) for scaled-dot, else 1",
            {"scale"});
  group.arguments(Group::Of::scores);
  group.repeated("--argument", o.arguments,
                 "any argument by its name, NAME=FILE.npy: mods[0].slope. A flag whose help begins with such "
                 "a name is a short form: --sink FILE stands for --argument normalizer.sink=FILE. Those "
                 "without a flag: " +
                     names_without_flags() + "; may be repeated",
                 "NAME=FILE");
}

void add_mods(Command command, AttendOptions& o) {
  Group group(command, o, "Mods, in the order given");
  group.repeated("--mod", o.mods, names_of_mods() + "; may be repeated", "MOD", {"mods"});
  group.repeated("--weight-mod", o.weight_mods,
                 "the same for weights, after the normaliser, such as gaussian", "MOD", {"weight_mods"});
  group
      .add("--local-p", o.local_reach,
           "Luong's local-p: centers S*sigmoid(v'tanh(Wq)), keys within REACH of them, weights multiplied by "
           "a Gaussian of deviation REACH/2")
      .type_name("REACH");
  group.file("--local-query", o.local_query, "W [hidden, query_dim] of the centers, or one for each head");
  group.file("--local-vector", o.local_vector, "v [hidden] of the centers, or one for each head");
}

void add_normalizer(Command command, AttendOptions& o) {
  Group mask(command, o, "Mask");
  mask.add("--mask", o.mask, names_of_masks() + "; & | ~ ( )", {"mask"});
  Group group(command, o, "Normaliser and dropout");
  group.add("--normalizer", o.normalizer, names_of_normalizers(), {"normalizer"});
  group.arguments(Group::Of::normalizers);
  group.add("--sample-seed", o.sample_seed, "for sample and gumbel; default 0");
  group.add("--dropout", o.dropout, "drop weights with this probability, rounded to k/256", {"dropout.rate"})
      .type_name("RATE")
      .check(dropout_rate());
  group.add("--dropout-seed", o.dropout_seed, "default 0");
}

void add_mechanisms(Command command, AttendOptions& o) {
  Group group(command, o, "Mechanisms");
  group.file("--differential", o.differential,
             "lambda [heads]: the difference of two attentions; query and key have twice as many heads",
             {"lambda"});
  group.file(
      "--gate", o.gate,
      "multiplies the output by sigmoid(gate): [batch, heads, query_len, value_dim], or 1 for value_dim",
      {"gate"});
  group.file(
      "--latent-key", o.latent_key,
      "latent attention, W_UK [heads, content_dim, latent_dim]: --query is the content part, --key the "
      "cache [batch, key_len, latent_dim + rotary_dim]",
      {"W_UK"});
  group.file("--latent-value", o.latent_value, "W_UV [heads, value_dim, latent_dim]", {"W_UV"});
  group.file("--query-rotary", o.query_rotary, "[batch, heads, query_len, rotary_dim], already turned",
             {"query_rotary"});
  group.add("--latent-execution", o.latent_execution, "absorbed (default) or naive")
      .check(one_of({"absorbed", "naive"}));
}

void add_results(Command command, AttendOptions& o) {
  Group outputs(command, o, "Outputs");
  outputs.add("--out", o.out, "[batch, heads, query_len, value_dim]").type_name("FILE").check(file_name());
  outputs.add("--weights", o.weights, "[batch, heads, query_len, key_len]")
      .type_name("FILE")
      .check(file_name());
  outputs.numbers("--weight-heads", o.weight_heads, "the heads of --weights and --grad-weights; default all",
                  {"weight_heads"});
  outputs.numbers("--weight-rows", o.weight_rows,
                  "the query rows of --weights and --grad-weights; default all", {"weight_rows"});
  outputs.add("--lse", o.lse, "log-sum-exp [batch, heads, query_len]").type_name("FILE").check(file_name());
  Group gradients(command, o, "Gradients");
  gradients.file("--grad", o.grad, "derivative of the loss by the output, of the same shape",
                 {"d_output", "d_gated"});
  gradients.file("--grad-weights", o.grad_weights, "derivative of the loss by the weights, of the same shape",
                 {"d_weights"});
  gradients
      .add("--grad-out", o.grad_out,
           "folder for query.npy, key.npy, value.npy, score.W.npy, mods[0].slope.npy, "
           "normalizer.sink.npy ...")
      .type_name("FOLDER")
      .check(file_name());
  gradients.file("--advantage", o.advantage,
                 "for sample: the loss of each row less a baseline, [batch, heads, query_len]",
                 {"advantage"});
  Group how(command, o, "How it runs");
  how.add("--kernel", o.kernel,
          "amx, avx512bf16, avx512, avx2, baseline, tiles, reference, or an algorithm of one such as 'avx512 "
          "tiled'; default the best one that can run here",
          {"options.kernel"});
  how.add("--precision", o.precision,
          "least precision of products of f32: full, higher (three bf16 terms of each number), high (two), "
          "medium "
          "(one)")
      .check(one_of({"full", "higher", "high", "medium"}));
  how.add("--threads", o.threads, "0: all").check(in_range(0, 1024));
  command
      .add_flag("--explain", o.explain,
                "print the kernels, why better ones refused, and the tiles the mask skips; without --out and "
                "other results nothing is computed")
      .group("How it runs");
}

// A flag that only has a meaning if `holds`; `needed` is the expectation that the error names.
struct Condition {
  const char* flag;
  bool given, holds;
  const char* needed;
};

void check_conditions(std::initializer_list<Condition> conditions, const std::string& got) {
  for (const Condition& c : conditions) {
    if (c.given && !c.holds) refuse(c.flag, c.needed, got);
  }
}

void check_score(const AttendOptions& o, const AttentionSpec& spec) {
  const bool keyless = definition(spec.score).key_rows >= 0;
  check_conditions({{"--key", !o.key.empty(), !keyless, "nothing: this score reads no keys"},
                    {"--rope", !o.rope.empty(), !keyless, "a score of queries and keys"}},
                   "--score " + o.score);
  if (!keyless && o.key.empty()) refuse("--key", "a file", "none");
}

void check_normalizer(const AttendOptions& o, const AttentionSpec& spec) {
  const bool sample = kind_of(spec.normalizer) == NormalizerKind::sample,
             gumbel = kind_of(spec.normalizer) == NormalizerKind::gumbel;
  check_conditions({{"--sample-seed", o.sample_seed.has_value(), sample || gumbel,
                     "--normalizer sample or gumbel beside it"},
                    {"--advantage", !o.advantage.empty(), sample, "--normalizer sample beside it"}},
                   "--normalizer " + o.normalizer);
  if (sample && o.has_gradients() && o.advantage.empty())
    refuse("--advantage", "a file [batch, heads, query_len] for gradients with --normalizer sample", "none");
  check_conditions(
      {{"--dropout-seed", o.dropout_seed.has_value(), o.dropout.has_value(), "--dropout beside it"},
       {"--advantage", !o.advantage.empty(), o.has_gradients(), "--grad or --grad-weights beside it"}},
      "none");
}

void check_mechanisms(const AttendOptions& o, const AttentionSpec& spec) {
  const bool latent = o.is_latent(), differential = !o.differential.empty();
  check_conditions(
      {{"--latent-key", latent, !o.latent_key.empty(), "a file beside --latent-value"},
       {"--latent-value", latent, !o.latent_value.empty(), "a file beside --latent-key"},
       {"--query-rotary", !o.query_rotary.empty(), latent, "--latent-key beside it"},
       {"--latent-execution", !o.latent_execution.empty(), latent, "--latent-key beside it"},
       {"--local-p", !o.local_query.empty() || !o.local_vector.empty(), o.local_reach.has_value(),
        "a reach beside --local-query and --local-vector"},
       {"--local-query", o.local_reach.has_value(), !o.local_query.empty(), "a file for --local-p"},
       {"--local-vector", o.local_reach.has_value(), !o.local_vector.empty(), "a file for --local-p"}},
      "none");
  check_conditions({{"--differential", differential, !latent, "no latent attention beside it"},
                    {"--value", !o.value.empty(), !latent, "nothing: values come from the latents"},
                    {"--rope", !o.rope.empty(), !latent, "--query-rotary and the cache turned already"},
                    {"--score", o.score != "scaled-dot", !latent, "scaled-dot: latent attention sets it"},
                    {"--scale", o.scale.has_value(), !latent, "none: latent attention sets it"}},
                   "--latent-key");
  check_conditions(
      {{"--score", definition(spec.score).key_rows >= 0, !differential, "a score of queries and keys"},
       {"--local-p", o.local_reach.has_value(), !differential, "one attention, not two"},
       {"--lse", !o.lse.empty(), !differential, "one attention, not two"}},
      "--differential");
  for (const auto& [flag, given] : {std::pair("--weights", !o.weights.empty()),
                                    {"--grad-weights", !o.grad_weights.empty()},
                                    {"--advantage", !o.advantage.empty()}}) {
    if (given && (latent || differential))
      refuse(flag, "one attention over plain keys", latent ? "--latent-key" : "--differential");
  }
}

void check_packed(const AttendOptions& o) {
  check_conditions(
      {{"--query-starts", !o.key_starts.empty(), !o.query_starts.empty(), "numbers beside --key-starts"},
       {"--key-starts", !o.query_starts.empty(), !o.key_starts.empty(), "numbers beside --query-starts"}},
      "none");
  if (!o.is_packed()) return;
  if (o.key_starts.size() != o.query_starts.size())
    refuse("--key-starts", "as many numbers as --query-starts has, " + std::to_string(o.query_starts.size()),
           std::to_string(o.key_starts.size()));
  if (o.query_starts.size() < 2)
    refuse("--query-starts", "at least two numbers", std::to_string(o.query_starts.front()));
  const char* padded = "a padded batch, without --query-starts";
  check_conditions({{"--latent-key", o.is_latent(), false, padded},
                    {"--local-p", o.local_reach.has_value(), false, padded},
                    {"--weight-rows", !o.weight_rows.empty(), false, padded}},
                   "--query-starts");
}

void check_results(const AttendOptions& o) {
  const bool chosen = !o.weights.empty() || !o.grad_weights.empty(),
             value = !o.value.empty() || o.is_latent();
  if (o.out.empty() && o.weights.empty() && !o.explains_alone())
    refuse("--out", "a file, or one for --weights, or --explain alone", "none");
  check_conditions(
      {{"--value", !o.out.empty(), value, "a file for --out"},
       {"--value", o.explains_alone(), value, "a file beside --explain alone"},
       {"--value", !o.grad.empty(), value, "a file for --grad"},
       {"--gate", !o.gate.empty(), o.has_output(), "--out or --grad beside it"},
       {"--weight-heads", !o.weight_heads.empty(), chosen, "--weights or --grad-weights beside it"},
       {"--weight-rows", !o.weight_rows.empty(), chosen, "--weights or --grad-weights beside it"},
       {"--grad-out", o.has_gradients(), !o.grad_out.empty(), "a folder beside --grad or --grad-weights"},
       {"--grad", !o.grad_out.empty(), o.has_gradients(),
        "a file, or one for --grad-weights, beside --grad-out"}},
      "none");
}

}  // namespace

void refuse(const std::string& flag, const std::string& expected, const std::string& got) {
  throw InvalidArgument("fovea attend", flag, expected, got);
}

NamedFile::NamedFile(std::string given) : text(std::move(given)) {
  const std::size_t equals = text.find('=');
  name = text.substr(0, equals);
  if (equals != std::string::npos) file = text.substr(equals + 1);
}

void add_attend_options(Command command, AttendOptions& options) {
  options.argument_files.resize(argument_flags().size());
  add_operands(command, options);
  add_score(command, options);
  add_mods(command, options);
  add_normalizer(command, options);
  add_mechanisms(command, options);
  add_results(command, options);
}

void check_attend_options(const AttendOptions& options, const AttentionSpec& spec) {
  check_mechanisms(options, spec);
  check_score(options, spec);
  check_normalizer(options, spec);
  check_packed(options);
  check_results(options);
}

void check_attend_files(const AttendOptions& options,
                        const std::vector<std::pair<std::string, std::string>>& outputs) {
  std::vector<std::string> read;
  for (const std::string* path : options.inputs) read.push_back(*path);
  for (const auto* list : {&options.mods, &options.weight_mods, &options.arguments}) {
    for (const NamedFile& named : *list) read.push_back(named.file);
  }
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    const auto& [flag, path] = outputs[n];
    if (path.empty()) continue;
    for (std::size_t other = 0; other < n; ++other) {
      if (!outputs[other].second.empty() && same_file(path, outputs[other].second))
        refuse(flag, "a file other than that of " + outputs[other].first, path);
    }
    for (const std::string& input : read) {
      if (!input.empty() && same_file(path, input)) refuse(flag, "a file other than those it reads", path);
    }
  }
}

}  // namespace fovea::cli
