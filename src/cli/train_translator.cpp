// A translator is trained on pairs of lines, or on a corpus that is made here.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/text/generated.h"
#include "fovea/text/gettext.h"
#include "fovea/train/dataset.h"

namespace fovea::cli {
namespace {

struct Corpora {
  text::ParallelCorpus train, valid;
};

text::ReadResult read_pair(const std::string& source, const std::string& target, const std::string& tsv,
                           const TrainCommand& options) {
  const text::ReadOptions reading{.bad_line = options.bad_lines == "skip" ? text::BadLine::skip_and_count
                                                                          : text::BadLine::refuse};
  return tsv.empty() ? text::read_parallel_files(source, target, reading) : text::read_tsv(tsv, reading);
}

Corpora read_corpora(const TrainCommand& o) {
  Corpora corpora;
  if (o.corpus == "generated") {
    corpora.train = text::generate_corpus({.seed = o.seed, .count = o.corpus_size});
    corpora.valid = text::generate_corpus({.seed = o.seed + 1, .count = 500, .split = text::Split::valid});
  } else if (o.corpus == "gettext") {
    const text::GettextResult all = text::gettext_corpus({.language = o.language});
    fmt::print(stderr, "gettext: {}\n", all.report.to_string());
    corpora = {text::select_split(all.corpus, text::Split::train),
               text::select_split(all.corpus, text::Split::valid)};
    if (corpora.valid.pairs.size() > 500) corpora.valid.pairs.resize(500);
  } else {
    if (o.train_tsv.empty() && (o.train_source.empty() || o.train_target.empty())) {
      throw InvalidArgument("fovea train", "--train-source, --train-target",
                            "two files (or --train-tsv, or --corpus generated|gettext)", "none");
    }
    if (o.valid_tsv.empty() && (o.valid_source.empty() || o.valid_target.empty())) {
      throw InvalidArgument("fovea train", "--valid-source, --valid-target", "two files (or --valid-tsv)",
                            "none");
    }
    text::ReadResult train = read_pair(o.train_source, o.train_target, o.train_tsv, o);
    text::ReadResult valid = read_pair(o.valid_source, o.valid_target, o.valid_tsv, o);
    fmt::print(stderr, "train: {}\nvalid: {}\n", train.report.to_string(), valid.report.to_string());
    corpora = {std::move(train.corpus), std::move(valid.corpus)};
    if (corpora.train.pairs.empty())
      throw InvalidArgument("fovea train", o.train_tsv.empty() ? "--train-source" : "--train-tsv",
                            "at least one pair in which both sides have text", "none");
  }
  return corpora;
}

std::unique_ptr<models::SequenceToSequence> build_model(const TrainCommand& o, std::int64_t vocabulary) {
  using Positions = models::TransformerConfig::Positions;
  const std::map<std::string, Positions> positions{{"sinusoidal", Positions::sinusoidal},
                                                   {"rotary", Positions::rotary},
                                                   {"alibi", Positions::alibi},
                                                   {"relative", Positions::relative}};
  if (o.model == "transformer") {
    return models::make_transformer(
        {.vocabulary = vocabulary,
         .dim = o.dim,
         .feed_forward = o.feed_forward,
         .heads = o.heads,
         .encoder_layers = o.layers,
         .decoder_layers = o.layers,
         .norm = o.norm == "pre" ? models::NormPlace::pre : models::NormPlace::post,
         .positions = positions.at(o.positions),
         .dropout = static_cast<float>(o.dropout),
         .attention_dropout = static_cast<float>(o.attention_dropout),
         .encoder_mixers = encoder_mixers_of(o),
         .decoder_mixers = mixers_of(o)},
        o.seed);
  }
  const std::map<std::string, models::RnnAttention> attentions{
      {"none", models::RnnAttention::none},       {"additive", models::RnnAttention::additive},
      {"dot", models::RnnAttention::dot},         {"scaled-dot", models::RnnAttention::scaled_dot},
      {"general", models::RnnAttention::general}, {"low-rank", models::RnnAttention::low_rank}};
  using autograd::Cell;
  const std::map<std::string, Cell> cells{{"rnn", Cell::rnn}, {"gru", Cell::gru}, {"lstm", Cell::lstm}};
  return models::make_rnn(
      {.vocabulary = vocabulary,
       .embedding = o.embedding,
       .hidden = o.hidden,
       .cell = cells.at(o.cell),
       .attention = attentions.at(o.attention),
       .query = o.query == "after" ? models::QueryState::after : models::QueryState::before,
       .values = o.values == "projection" ? models::ValueKind::projection : models::ValueKind::states,
       .dropout = static_cast<float>(o.dropout)},
      o.seed);
}

train::TrainOptions training_options(const TrainCommand& o) {
  train::TrainOptions t;
  t.batch_words = o.batch_words;
  t.schedule = schedule_of(o);
  t.adam = {.beta1 = 0.9, .beta2 = o.beta2, .epsilon = 1e-8, .clip_norm = o.clip};
  t.smoothing = static_cast<float>(o.smoothing);
  t.precision = autograd::parse_operands(o.precision);
  t.activations = o.activations;
  t.max_updates = o.updates;
  t.max_epochs = o.epochs;
  t.max_minutes = o.minutes;
  t.validate_every = o.validate_every;
  t.save_every = o.save_every;
  t.patience = o.patience;
  t.metric = o.metric == "perplexity" ? train::Metric::perplexity : train::Metric::bleu;
  t.average = o.average;
  t.seed = o.seed;
  t.folder = o.output;
  return t;
}

std::map<std::string, train::TokenizerKind> tokenizer_kinds() {
  return {{"bpe", train::TokenizerKind::bpe},
          {"characters", train::TokenizerKind::characters},
          {"whitespace", train::TokenizerKind::whitespace}};
}

}  // namespace

void train_translator(const TrainCommand& o) {
  catch_signals();
  nn::use_threads(o.threads);
  check_output(o);
  const Corpora corpora = read_corpora(o);
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (o.resume) {
    tokenizer = resumed_tokenizer(o);
  } else {
    tokenizer = train::build_tokenizer(
        corpora.train, {tokenizer_kinds().at(o.tokenizer),
                        o.tokenizer == "whitespace" && !o.vocabulary_given ? 0 : o.vocabulary});
  }
  train::EncodeReport report;
  const train::Data data = train::make_data(corpora.train, corpora.valid, *tokenizer, o.max_length, &report);
  const auto model = build_model(o, tokenizer->size());
  fmt::print(
      stderr,
      "{} pairs to train on ({} empty and {} longer than {} pieces left out), {} to validate ({} left out); "
      "vocabulary {}, {:.2f} M parameters\n",
      report.kept, report.skipped_empty, report.skipped_too_long, o.max_length, data.valid.size(),
      corpora.valid.pairs.size() - data.valid.size(), tokenizer->size(),
      static_cast<double>(model->parameters().count()) / 1e6);
  run_training(
      o, *tokenizer,
      [&](train::Start start, train::Listener& progress) {
        return train::train(*model, data, training_options(o), start, progress, stop_requested);
      },
      [](const train::Result& result) {
        return fmt::format("BLEU {:.2f}, perplexity {:.2f}{}", result.final.bleu, result.final.perplexity,
                           result.averaged ? " (averaged)" : "");
      });
}

}  // namespace fovea::cli
