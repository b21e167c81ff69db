// The state of a Batcher: the texts that wait, and those that are written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "fovea/models/batcher.h"
#include "models/sampling.h"

namespace fovea::models {

struct Batcher::Impl {
  Impl(LanguageModel& of, const BatcherOptions& given)
      : model(of),
        options(given),
        cache({.layers = of.cache_layers(Paged{prompt_piece}),
               .limit_bytes = given.limit_bytes,
               .prefix_bytes = given.prefix_bytes}),
        shares_pages(std::ranges::all_of(cache.options().layers, [](const CacheLayer& layer) {
          return layer.store == CacheStore(Paged{prompt_piece});
        })) {}

  // A request, and its sequence once it runs.
  struct Text {
    std::uint64_t number = 0;
    Request request;
    std::int64_t bytes = 0;  // that it takes at most
    Sequence sequence = {};
    Generated written = {};
    bool waits = false;  // in the last step, for another text that read the same piece

    std::int64_t read(const KvCache& cache) const { return sequence ? cache.length(sequence) : 0; }
    // What is to be read next: a piece of the prompt, or the last token.
    std::span<const std::int32_t> next(const KvCache& cache) const {
      if (!written.ids.empty()) return std::span(written.ids).last(1);
      const std::int64_t length = read(cache);
      return next_piece(std::span(request.prompt).subspan(static_cast<std::size_t>(length)), length);
    }
  };

  // One row of a step: what a text reads.
  struct Reading {
    Text* text = nullptr;
    std::int64_t rows = 0;
    bool writes = false;            // whether a token follows
    std::exception_ptr error = {};  // why that token could not be chosen
  };

  // Readings of a step that one thread computes.
  struct Share {
    std::span<Reading> readings;
    std::exception_ptr error = {};  // why they were not read
  };

  void take_arrivals();
  void admit();
  void look_up(Text& text);
  std::vector<Reading> choose();
  std::vector<Share> share_out(std::span<Reading> readings);
  void write(const Share& share, const Tensor& rows);
  void read(const Share& share);
  void tell(const Reading& reading);
  void end(Text& text, Finish finish, std::exception_ptr error = {});
  void drop_ended();
  void count(std::span<const Share> shares);

  LanguageModel& model;
  const BatcherOptions options;
  // Of the thread that steps.
  KvCache cache;
  bool shares_pages = false;  // whether start(ids) of this cache can find anything
  std::deque<Text> queue;     // not yet running, in the order of arrival
  std::list<Text> running;    // in the order of arrival
  std::int64_t promised = 0;  // bytes of all that run
  // Of all threads.
  mutable std::mutex mutex;
  std::deque<Text> arrivals;
  std::set<std::uint64_t> open, cancelled;
  std::uint64_t last_number = 0;
  Stats stats;
};

}  // namespace fovea::models
