#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/train_options.h"

namespace fovea::cli {
namespace {

// Refuses --positions that no layer uses. Attention of a side to itself uses all of them, a mixer that reads
// one side all but relative ones, and retention rotary ones.
void refuse_positions_of_attention(const TrainCommand& o) {
  if (o.positions == "sinusoidal") return;
  const auto acts = [&](models::LayerMixer mixer) {
    return mixer == models::LayerMixer::attention ||
           (o.positions != "relative" && !models::reads_both_sides(mixer)) ||
           (o.positions == "rotary" && mixer == models::LayerMixer::retention);
  };
  if (std::ranges::none_of(mixers_of(o), acts) && std::ranges::none_of(encoder_mixers_of(o), acts))
    throw InvalidArgument("fovea train", "--positions",
                          "sinusoidal, because no layer has attention to its own side", o.positions);
}

void check_heads(const TrainCommand& o) {
  const auto refuse = [&](const std::string& expected) {
    throw InvalidArgument("fovea train", "--heads", expected, std::to_string(o.heads));
  };
  if (o.dim % o.heads != 0) refuse(fmt::format("a divisor of --dim, which is {}", o.dim));
  if (o.positions == "rotary" && o.dim / o.heads % 2 != 0)
    refuse(fmt::format("heads of an even width with --positions rotary, so a divisor of {}", o.dim / 2));
}

// Refuses options that this training would ignore.
void refuse_unused(Command command, const TrainCommand& o) {
  const auto refuse = [&](const std::string& reason, std::initializer_list<const char*> options) {
    for (const char* option : options) {
      if (command.given(option))
        throw InvalidArgument("fovea train", option,
                              "no value, because the option has no effect with " + reason, "a value");
    }
  };
  const auto refuse_texts = [&](const std::string& reason) {
    refuse(reason, {"--train-text", "--valid-text", "--window", "--longest", "--batch"});
  };
  if (o.model == "language") {
    refuse("--model language", {"--encoder-mixers",
                                "--attention",
                                "--query",
                                "--values",
                                "--cell",
                                "--dim-emb",
                                "--dim-rnn",
                                "--norm",
                                "--positions",
                                "--train-source",
                                "--train-target",
                                "--train-tsv",
                                "--valid-source",
                                "--valid-target",
                                "--valid-tsv",
                                "--corpus",
                                "--corpus-size",
                                "--language",
                                "--bad-lines",
                                "--max-length",
                                "--mini-batch-words",
                                "--max-epochs",
                                "--early-stopping-metric",
                                "--average"});
    if (o.tokenizer == "whitespace")
      throw InvalidArgument("fovea train", "--tokenizer", "bpe or characters, with --model language",
                            o.tokenizer);
    const std::vector<models::LayerMixer> mixers = mixers_of(o);
    if (std::ranges::find(mixers, models::LayerMixer::attention) == mixers.end())
      refuse("--mixers " + o.mixers, {"--attention-dropout"});
    if (std::ranges::all_of(mixers, [](auto mixer) { return mixer == models::LayerMixer::mamba; }))
      refuse("--mixers " + o.mixers, {"--heads"});
    if (o.schedule == "constant") refuse("--lr-schedule constant", {"--lr-warmup"});
    return;
  }
  refuse_texts("--model " + o.model);
  if (o.model == "transformer") {
    refuse("--model transformer", {"--attention", "--query", "--values", "--cell", "--dim-emb", "--dim-rnn"});
    refuse_positions_of_attention(o);
    check_heads(o);
    for (const models::LayerMixer mixer : encoder_mixers_of(o)) {
      if (!models::reads_both_sides(mixer))
        throw InvalidArgument("fovea train", "--encoder-mixers",
                              "mixers that read both sides, because an encoder does",
                              std::string(models::to_string(mixer)));
    }
  } else {
    refuse("--model rnn", {"--dim", "--dim-ffn", "--heads", "--layers", "--norm", "--positions",
                           "--attention-dropout", "--mixers", "--encoder-mixers", "--recompute-activations"});
    if (o.attention == "none") refuse("--attention none", {"--query", "--values"});
  }
  if (!o.corpus.empty()) {
    refuse("--corpus", {"--train-source", "--train-target", "--train-tsv", "--valid-source", "--valid-target",
                        "--valid-tsv"});
  }
  if (o.corpus == "generated") {
    refuse("--corpus generated", {"--language", "--bad-lines"});
  } else {
    refuse(o.corpus.empty() ? "a corpus from files" : "--corpus gettext", {"--corpus-size"});
  }
  if (o.corpus.empty()) refuse("a corpus from files", {"--language"});
  if (!o.train_tsv.empty()) refuse("--train-tsv", {"--train-source", "--train-target"});
  if (!o.valid_tsv.empty()) refuse("--valid-tsv", {"--valid-source", "--valid-target"});
  if (o.schedule == "constant") refuse("--lr-schedule constant", {"--lr-warmup"});
  if (o.average == 1)
    throw InvalidArgument("fovea train", "--average", "0, or at least 2 validations to average", "1");
}

}  // namespace

nn::Schedule schedule_of(const TrainCommand& o) {
  if (o.schedule == "constant") return nn::Constant{o.rate};
  if (o.schedule == "inverse-square-root") return nn::InverseSquareRoot{o.rate, o.warmup};
  if (o.updates == 0 && o.minutes == 0.0) {
    throw InvalidArgument("fovea train", "--max-updates",
                          "the length of a training by --lr-schedule cosine, here or in --max-minutes",
                          "none");
  }
  return nn::WarmupCosine{o.rate, o.warmup, o.updates};
}

namespace {

std::vector<models::LayerMixer> parsed_mixers(const char* option, const std::string& text,
                                              std::int64_t layers) {
  try {
    return models::parse_mixers(text, layers);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("fovea train", option, error.expected(), error.got());
  }
}

}  // namespace

std::vector<models::LayerMixer> mixers_of(const TrainCommand& o) {
  return parsed_mixers("--mixers", o.mixers_given ? o.mixers : "attention", o.layers);
}

std::vector<models::LayerMixer> encoder_mixers_of(const TrainCommand& o) {
  return o.encoder_mixers_given ? parsed_mixers("--encoder-mixers", o.encoder_mixers, o.layers)
                                : mixers_of(o);
}

void register_train(Command app) {
  auto o = std::make_shared<TrainCommand>();
  Command command = app.add_subcommand("train", "Train a translator or a language model");
  command.add_option("--model", o->model, "rnn or transformer, which translate, or language")
      .check(one_of({"rnn", "transformer", "language"}));
  command.add_option("--train-text", o->train_text, "of a language model: a text").check(file_name());
  command.add_option("--valid-text", o->valid_text, "of a language model: another text, for validation")
      .check(file_name());
  command.add_option(
      "--mixers,--mixer", o->mixers,
      "of a language model or a Transformer: what mixes the rows of each layer, attention, linear, "
      "retention, gla, gated_delta, mamba2, mamba, rwkv7, performer, pooled, linformer or merging. A list "
      "such as gated_delta*3,attention is repeated. The last three do not stand in an encoder. In an encoder "
      "a recurrence reads from both "
      "sides");
  command.add_option("--encoder-mixers", o->encoder_mixers,
                     "of a Transformer's encoder; default: those of --mixers");
  command.add_option("--window", o->window, "of a language model: tokens that it reads at once")
      .check(in_range(1, 1 << 20));
  command
      .add_option("--longest", o->longest,
                  "of a language model with attention or retention: tokens that a text may have")
      .check(in_range(1, 1 << 20));
  command.add_option("--batch", o->batch, "of a language model: windows of an update")
      .check(in_range(1, 1 << 20));
  command.add_option("--output", o->output, "folder for model, vocabulary and checkpoints").required();
  command.add_option("--train-source", o->train_source, "one sentence a line").check(file_name());
  command.add_option("--train-target", o->train_target, "its translations, line by line").check(file_name());
  command.add_option("--train-tsv", o->train_tsv, "source TAB target").check(file_name());
  command.add_option("--valid-source", o->valid_source, "for validation").check(file_name());
  command.add_option("--valid-target", o->valid_target, "for validation").check(file_name());
  command.add_option("--valid-tsv", o->valid_tsv, "for validation").check(file_name());
  command
      .add_option("--corpus", o->corpus,
                  "instead of files: the built-in generator, or this machine's gettext catalogues")
      .check(one_of({"generated", "gettext"}));
  command.add_option("--corpus-size", o->corpus_size, "pairs to generate").check(positive());
  command.add_option("--language", o->language, "of the gettext catalogues");
  command.add_option("--bad-lines", o->bad_lines, "refuse, or skip and count")
      .check(one_of({"refuse", "skip"}));
  command
      .add_option(
          "--tokenizer", o->tokenizer,
          "bpe (trained here, joint), characters, or whitespace (already split; '@@ ' joined on output)")
      .check(one_of({"bpe", "characters", "whitespace"}));
  command.add_option("--vocab-size", o->vocabulary, "pieces at most").check(in_range(100, 1000000));
  command.add_option("--max-length", o->max_length, "pieces of a training sentence").check(positive());
  command.add_option("--attention", o->attention, "of an RNN")
      .check(one_of({"none", "additive", "dot", "scaled-dot", "general", "low-rank"}));
  command.add_option("--query", o->query, "of an RNN: the state before or after the step")
      .check(one_of({"before", "after"}));
  command.add_option("--values", o->values, "of an RNN: encoder states or their projection")
      .check(one_of({"states", "projection"}));
  command.add_option("--cell", o->cell, "of an RNN").check(one_of({"rnn", "gru", "lstm"}));
  command.add_option("--dim-emb", o->embedding, "of an RNN").check(in_range(1, 65536));
  command.add_option("--dim-rnn", o->hidden, "of an RNN, each direction").check(in_range(1, 65536));
  command.add_option("--dim", o->dim, "of a Transformer").check(in_range(2, 65536));
  command.add_option("--dim-ffn", o->feed_forward, "of a Transformer").check(in_range(1, 65536));
  command.add_option("--heads", o->heads, "of a Transformer").check(in_range(1, 1024));
  command.add_option("--layers", o->layers, "of a Transformer, each side").check(in_range(1, 1000));
  command.add_option("--norm", o->norm, "of a Transformer").check(one_of({"pre", "post"}));
  command
      .add_option("--positions", o->positions,
                  "of a Transformer: sines added to the words; or, in the attention of each side to itself, "
                  "rotary, ALiBi with learned slopes, or T5's relative bias")
      .check(one_of({"sinusoidal", "rotary", "alibi", "relative"}));
  command
      .add_option("--dropout", o->dropout,
                  "share of activations that are left out in training, rounded to k/256")
      .check(finite())
      .check(in_range(0.0, 0.95))
      .check(dropout_rate());
  command.add_option("--attention-dropout", o->attention_dropout, "of a Transformer's weights, likewise")
      .check(finite())
      .check(in_range(0.0, 0.95))
      .check(dropout_rate());
  command.add_option("--mini-batch-words", o->batch_words, "padded tokens a batch, one side")
      .check(positive());
  command.add_option("--learn-rate,--lr", o->rate, "peak, or constant").check(finite()).check(positive());
  command
      .add_option("--lr-schedule", o->schedule,
                  "behind the warm-up; cosine falls to 0 at the last of --max-updates, or without those at "
                  "the end of --max-minutes")
      .check(one_of({"inverse-square-root", "constant", "cosine"}));
  command.add_option("--lr-warmup", o->warmup, "updates").check(non_negative());
  command.add_option("--beta2", o->beta2, "of Adam").check(finite()).check(in_range(0.0, 0.99999));
  command
      .add_option(
          "--precision", o->precision,
          "of the operands of products; bf16: faster on CPUs with AVX512_BF16, all that is kept stays f32")
      .check(one_of({"f32", "bf16"}));
  command.add_flag(
      "--recompute-activations", [o] { o->activations = nn::Activations::recomputed; },
      "of Transformers: keep the blocks' inputs alone, and compute the rest again in backward; less memory, "
      "more time, the same weights");
  command.add_option("--label-smoothing", o->smoothing, "share of a target that all pieces share")
      .check(finite())
      .check(in_range(0.0, 0.9));
  command.add_option("--clip-norm", o->clip, "0: off").check(finite()).check(non_negative());
  command.add_option("--max-updates", o->updates, "0: no limit").check(non_negative());
  command.add_option("--max-epochs", o->epochs, "0: no limit").check(non_negative());
  command.add_option("--max-minutes", o->minutes, "0: no limit").check(finite()).check(non_negative());
  command.add_option("--valid-freq", o->validate_every, "updates; 0: every epoch").check(non_negative());
  command.add_option("--save-freq", o->save_every, "updates").check(non_negative());
  command
      .add_option(
          "--early-stopping", o->patience,
          "stop after so many validations in a row that improved neither the metric nor the validation "
          "cross-entropy; 0: never")
      .check(non_negative());
  command
      .add_option("--early-stopping-metric", o->metric,
                  "what the best model is chosen by (BLEU to two decimals, then cross-entropy)")
      .check(one_of({"bleu", "perplexity"}));
  command.add_option("--average", o->average, "of the last N validations' weights").check(non_negative());
  command.add_option("--seed", o->seed, "of initial weights, order and dropout");
  add_threads_option(command, o->threads);
  command.add_flag(
      "--resume", o->resume,
      "go on where the training in --output stopped. Its training.json is compared with the options: data, "
      "model, --seed, --mini-batch-words, learning rate and schedule, --beta2, --clip-norm, "
      "--label-smoothing, --precision and --early-stopping-metric must be the same, else an error names "
      "them; for limits, --recompute-activations, --early-stopping, --valid-freq, --save-freq and --average "
      "the command line wins. The tokenizer is "
      "the one in --output, and --vocab-size is not looked at");
  command.callback([o, command] {
    o->tokenizer_given = command.given("--tokenizer");
    o->vocabulary_given = command.given("--vocab-size");
    o->smoothing_given = command.given("--label-smoothing");
    o->mixers_given = command.given("--mixers");
    o->encoder_mixers_given = command.given("--encoder-mixers");
    refuse_unused(command, *o);
    (void)schedule_of(*o);  // refuses before any data is read
    o->model == "language" ? train_language_model(*o) : train_translator(*o);
  });
}

}  // namespace fovea::cli
