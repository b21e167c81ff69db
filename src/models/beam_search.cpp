#include "fovea/models/beam_search.h"

#include <algorithm>
#include <list>
#include <utility>

#include "fovea/models/batches.h"
#include "models/beams.h"
#include "models/rows.h"
#include "models/sampling.h"

namespace fovea::models {
namespace {

std::vector<BeamText> texts_of(Beams& beams) {
  std::vector<BeamText> texts;
  for (EndedBeam& ended : beams.ended()) texts.push_back(std::move(ended.text));
  return texts;
}

bool is_cancelled(std::span<const BeamRequest> requests) {
  return std::ranges::any_of(requests, [](const BeamRequest& request) {
    return request.options.cancelled && request.options.cancelled();
  });
}

// -- language models: each open text has a sequence of the cache

struct Searched {
  std::size_t number;
  Beams beams;
  std::vector<Sequence> sequences;
  std::vector<std::vector<std::int32_t>> unread;  ///< at first the end of the prompt, later one id each
  std::int64_t bytes = 0;
  bool at_prompt = true;
};

class Searches {
 public:
  Searches(LanguageModel& model, KvCache& cache, std::span<const BeamRequest> requests, const BeamsDone& done,
           const BeamsTogether& together)
      : model_(model), cache_(cache), requests_(requests), done_(done), together_(together) {}

  void run() {
    while (!cancelled()) {
      try {
        admit();
        if (running_.empty()) return;
        step();
      } catch (const CacheFull&) {
        // Searches that run together fit together; one that is alone may have been too large.
        if (running_.size() != 1) throw;
        end_of(running_.begin(), std::current_exception());
      }
    }
    for (auto search = running_.begin(); search != running_.end();) search = end_of(search);
  }

 private:
  bool cancelled() const {
    return std::ranges::any_of(running_, [&](const Searched& search) {
      const auto& asked = requests_[search.number].options.cancelled;
      return asked && asked();
    });
  }

  // Of a whole search: each text may share nothing with another but the prompt's pages.
  std::int64_t bytes_of(const BeamRequest& request) const {
    return cache_.bytes_for(std::ssize(request.prompt) + request.options.length) * request.options.beams;
  }

  // Requests are started in their order. One that is alone is always started, whatever it takes.
  void admit() {
    while (next_ < requests_.size()) {
      const BeamRequest& request = requests_[next_];
      const std::int64_t bytes = bytes_of(request);
      if (!running_.empty() &&
          (rows_ + request.options.beams > together_.rows || bytes > together_.limit_bytes - promised_))
        return;
      Searched& search =
          running_.emplace_back(Searched{next_, Beams(request.prompt, request.options), {}, {}, bytes, true});
      ++next_;
      rows_ += request.options.beams;
      promised_ += bytes;
      search.sequences.push_back(cache_.start());
      const auto last = read_prompt(model_, cache_, search.sequences[0], request.prompt);
      search.unread.emplace_back(last.begin(), last.end());
    }
  }

  void step() {
    std::vector<LanguageModel::Next> next;
    for (Searched& search : running_) {
      for (std::size_t i = 0; i < search.sequences.size(); ++i) {
        const std::span<const std::int32_t> ids = search.unread[i];
        next.push_back({.sequence = &search.sequences[i], .ids = ids, .known = search.at_prompt});
      }
    }
    const nn::Var rows = model_.extend(next, cache_);
    std::vector<std::int64_t> last;
    std::int64_t end = 0;
    for (const LanguageModel::Next& read : next) {
      end += std::ssize(read.ids);
      last.push_back(end - 1);
    }
    const Tensor logits =
        model_.logits(gather_entries(rows.value().reshape({rows.size(1), rows.size(2)}), last));
    std::int64_t row = 0;
    for (auto search = running_.begin(); search != running_.end();) {
      const auto open = static_cast<std::int64_t>(search->sequences.size());
      std::exception_ptr error;
      try {
        go_on(*search, search->beams.take(logits.data<float>() + row * logits.size(1), logits.size(1), row));
      } catch (const InvalidArgument&) {
        error = std::current_exception();  // the others go on
      }
      row += open;
      search = search->beams.open() > 0 && !error ? std::next(search) : end_of(search, error);
    }
  }

  void go_on(Searched& search, const std::vector<BeamStep>& steps) {
    std::vector<Sequence> sequences;
    search.unread.clear();
    search.at_prompt = false;
    for (const BeamStep& step : steps) {
      sequences.push_back(cache_.fork(search.sequences[step.parent]));
      search.unread.push_back({step.id});
    }
    search.sequences = std::move(sequences);
  }

  std::list<Searched>::iterator end_of(std::list<Searched>::iterator search, std::exception_ptr error = {}) {
    rows_ -= requests_[search->number].options.beams;
    promised_ -= search->bytes;
    const std::size_t number = search->number;
    std::vector<BeamText> texts = error ? std::vector<BeamText>() : texts_of(search->beams);
    const auto next = running_.erase(search);
    done_(number, std::move(texts), std::move(error));
    return next;
  }

  LanguageModel& model_;
  KvCache& cache_;
  std::span<const BeamRequest> requests_;
  const BeamsDone& done_;
  const BeamsTogether& together_;
  std::size_t next_ = 0;
  std::list<Searched> running_;
  std::int64_t rows_ = 0, promised_ = 0;
};

// -- translators: each open text has a row of the decoder's state

class TranslatorSearches {
 public:
  TranslatorSearches(SequenceToSequence& model, std::span<const BeamRequest> requests,
                     const DecoderStart& start, const BeamsDone& done)
      : requests_(requests), start_(start.id), model_(model), done_(done) {
    searches_.reserve(requests.size());
    std::vector<std::vector<std::int32_t>> sources;
    for (const BeamRequest& request : requests) {
      searches_.emplace_back(std::span(&start_, 1), request.options);
      sources.push_back(request.prompt);
    }
    const Batch batch = make_batch(sources, {}, 0, 0, SourceEnd::as_given);
    state_ = model.start(batch.source, batch.source_len, batch.source_lengths);
    state_->aligns = start.alignments;
  }

  void run() {
    std::vector<std::int32_t> previous(requests_.size(), start_);
    running_.assign(requests_.size(), true);
    while (!previous.empty() && !is_cancelled(requests_)) {
      const nn::Var hidden = model_.advance(*state_, previous);
      past_.push_back(state_->alignment);
      previous = step(model_.logits(hidden));
    }
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (running_[i]) end(i);
    }
  }

 private:
  // The ids that the open texts read next. Rows of the state follow them.
  std::vector<std::int32_t> step(const Tensor& logits) {
    std::vector<std::int32_t> previous;
    std::vector<std::int64_t> index;
    std::int64_t row = 0;
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      if (!running_[i]) continue;
      const auto open = static_cast<std::int64_t>(searches_[i].open());
      std::exception_ptr error;
      try {
        for (const BeamStep& next :
             searches_[i].take(logits.data<float>() + row * logits.size(1), logits.size(1), row)) {
          index.push_back(row + static_cast<std::int64_t>(next.parent));
          previous.push_back(next.id);
        }
      } catch (const InvalidArgument&) {
        error = std::current_exception();  // the others go on
      }
      row += open;
      if (error || searches_[i].open() == 0) end(i, error);
    }
    if (!previous.empty()) state_->reorder(index);
    return previous;
  }

  void end(std::size_t i, const std::exception_ptr& error = {}) {
    running_[i] = false;
    std::vector<BeamText> texts;
    if (!error) {
      for (EndedBeam& ended : searches_[i].ended()) trace(requests_[i].prompt.size(), ended);
      texts = texts_of(searches_[i]);
    }
    done_(i, std::move(texts), error);
  }

  // The weights that wrote each id.
  void trace(std::size_t source, EndedBeam& ended) const {
    for (std::size_t step = 0; step < ended.rows.size() && past_[step]; ++step) {
      const float* from = past_[step].data<float>() + ended.rows[step] * past_[step].size(1);
      ended.text.alignment.emplace_back(from, from + source);
    }
  }

  std::span<const BeamRequest> requests_;
  std::int32_t start_;
  SequenceToSequence& model_;
  const BeamsDone& done_;
  std::unique_ptr<DecoderState> state_;
  std::vector<Beams> searches_;
  std::vector<bool> running_;
  std::vector<Tensor> past_;
};

}  // namespace

void beam_search(LanguageModel& model, KvCache& cache, std::span<const BeamRequest> requests,
                 const BeamsDone& done, const BeamsTogether& together) {
  for (const BeamRequest& request : requests) {
    (void)Beams(request.prompt, request.options);
    check_rules({"beam_search"}, request.options.rules, model.config().vocabulary);
    check_generation({"beam_search"}, model, request.prompt, {});
    check_room({"beam_search"}, model, std::ssize(request.prompt), request.options.length);
  }
  Searches(model, cache, requests, done, together).run();
}

std::vector<BeamText> beam_search(LanguageModel& model, KvCache& cache, std::span<const std::int32_t> prompt,
                                  const BeamOptions& options) {
  std::vector<BeamText> texts;
  const BeamRequest request{{prompt.begin(), prompt.end()}, options};
  beam_search(model, cache, {&request, 1},
              [&](std::size_t, std::vector<BeamText> found, const std::exception_ptr& error) {
                if (error) std::rethrow_exception(error);
                texts = std::move(found);
              });
  return texts;
}

std::function<std::int64_t(std::int64_t source)> output_length(std::optional<std::int64_t> most,
                                                               double factor, std::int64_t positions) {
  return [=](std::int64_t source) {
    const std::int64_t by_source = static_cast<std::int64_t>(factor * static_cast<double>(source)) + 10;
    return std::clamp<std::int64_t>(most.value_or(by_source), 1, std::max<std::int64_t>(positions, 1));
  };
}

void beam_search(SequenceToSequence& model, std::span<const BeamRequest> requests, const DecoderStart& start,
                 const BeamsDone& done) {
  for (const BeamRequest& request : requests) {
    if (request.prompt.empty())
      throw InvalidArgument("beam_search", "sources", "at least one token in each source", "an empty source");
    check_rules({"beam_search"}, request.options.rules, model.vocabulary());
  }
  if (start.id < 0 || start.id >= model.vocabulary())
    throw InvalidArgument("beam_search", "options.start", "an id below " + std::to_string(model.vocabulary()),
                          std::to_string(start.id));
  if (!requests.empty()) TranslatorSearches(model, requests, start, done).run();
}

namespace {

// What `done` gets of a request.
struct Found {
  std::vector<BeamText> texts;
  std::exception_ptr error;
};

// Batches of the window run side by side. `first` is the number of its first request.
void search_window(SequenceToSequence& model, std::span<const BeamRequest> window, const DecoderStart& start,
                   std::int64_t batch, std::size_t first, const BeamsDone& done) {
  std::vector<std::int64_t> lengths;
  for (const BeamRequest& request : window) lengths.push_back(std::ssize(request.prompt));
  std::vector<Found> all(window.size());
  const auto search = [&](std::span<const std::size_t> own) {
    if (is_cancelled(window)) return false;
    std::vector<BeamRequest> of_batch;
    for (const std::size_t i : own) of_batch.push_back(window[i]);
    beam_search(model, of_batch, start,
                [&](std::size_t n, std::vector<BeamText> texts, std::exception_ptr error) {
                  all[own[n]] = {std::move(texts), std::move(error)};
                });
    return !is_cancelled(window);
  };
  for_batches_in_order(lengths, batch, search, [&](std::size_t i) {
    Found found = std::exchange(all[i], {});
    done(first + i, std::move(found.texts), std::move(found.error));
  });
}

}  // namespace

void search_in_batches(SequenceToSequence& model, std::span<const BeamRequest> requests,
                       const DecoderStart& start, std::int64_t batch, const BeamsDone& done) {
  if (batch < 1) throw InvalidArgument("search_in_batches", "batch", "at least 1", std::to_string(batch));
  // Sources of one window are sorted together. Its size is a compromise: a larger one has less padding, and a
  // smaller one is handed on sooner. A batch is no larger than all sources, so that the product does not
  // overflow.
  const auto window = static_cast<std::size_t>(16 * std::min<std::int64_t>(batch, std::ssize(requests) + 1));
  for (std::size_t begin = 0; begin < requests.size(); begin += window) {
    const auto own = requests.subspan(begin, std::min(window, requests.size() - begin));
    if (is_cancelled(own)) return;
    search_window(model, own, start, batch, begin, done);
  }
}

void beam_search(SequenceToSequence& model, const std::vector<std::vector<std::int32_t>>& sources,
                 const TranslatorBeams& options, const BeamsDone& done) {
  std::vector<BeamRequest> requests;
  for (const std::vector<std::int32_t>& source : sources) {
    BeamRequest& request = requests.emplace_back(BeamRequest{source, options.search});
    if (options.length_of) request.options.length = options.length_of(std::ssize(source));
  }
  beam_search(model, requests, {options.start, options.alignments}, done);
}

std::vector<std::vector<BeamText>> beam_search(SequenceToSequence& model,
                                               const std::vector<std::vector<std::int32_t>>& sources,
                                               const TranslatorBeams& options) {
  std::vector<std::vector<BeamText>> texts(sources.size());
  std::vector<std::exception_ptr> errors(sources.size());
  beam_search(model, sources, options,
              [&](std::size_t number, std::vector<BeamText> found, const std::exception_ptr& error) {
                texts[number] = std::move(found);
                errors[number] = error;
              });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return texts;
}

}  // namespace fovea::models
