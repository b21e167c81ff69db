// IBM Model 1 over sparse tables.
#include <algorithm>
#include <numeric>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/models/shortlist.h"

namespace fovea::models {
namespace {

using Pair = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;

void check_options(std::span<const Pair> pairs, const ShortlistOptions& o) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("learn_shortlist", argument, expected, got);
  };
  if (o.vocabulary < 1 || o.vocabulary > std::int64_t{1} << 30)
    refuse("options.vocabulary", "1 to 2^30", std::to_string(o.vocabulary));
  if (o.translations < 0) refuse("options.translations", "at least 0", std::to_string(o.translations));
  if (o.always < 0) refuse("options.always", "at least 0", std::to_string(o.always));
  if (o.iterations < 0) refuse("options.iterations", "at least 0", std::to_string(o.iterations));
  const auto check = [&](const char* argument, const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= o.vocabulary)
        refuse(argument, "ids in [0, " + std::to_string(o.vocabulary) + ")", std::to_string(id));
    }
  };
  check("options.also", o.also);
  for (const auto& [source, target] : pairs) {
    check("pairs", source);
    check("pairs", target);
  }
}

// t(target | source) for the pieces that occur together, in the rows of a sparse matrix. The last row is that
// of the empty source word, which every source has.
class Table {
 public:
  Table(std::span<const Pair> pairs, std::int64_t vocabulary) : empty_(vocabulary) {
    // Keys of some million occurrences at a time, so that memory follows the table and not the corpus.
    constexpr std::size_t at_once = std::size_t{1} << 22;
    std::vector<std::uint64_t> keys, more, both;
    const auto merge = [&] {
      std::ranges::sort(more);
      more.erase(std::unique(more.begin(), more.end()), more.end());
      both.clear();
      std::ranges::set_union(keys, more, std::back_inserter(both));
      std::swap(keys, both);
      more.clear();
    };
    for (const auto& [source, target] : pairs) {
      for_sources(source, [&](std::int64_t from) {
        for (const std::int32_t to : target)
          more.push_back(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to));
      });
      if (more.size() >= at_once) merge();
    }
    merge();
    starts_.assign(static_cast<std::size_t>(vocabulary) + 2, 0);
    for (const std::uint64_t key : keys) {
      ++starts_[(key >> 32) + 1];
      targets_.push_back(static_cast<std::int32_t>(key & 0xffffffffu));
    }
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    probabilities_.resize(keys.size());
    for (std::int64_t row = 0; row <= empty_; ++row) {
      const auto [begin, end] = range(row);
      std::fill(probabilities_.begin() + begin, probabilities_.begin() + end,
                1.0f / static_cast<float>(end - begin));
    }
  }

  // Expectation: a target piece is shared among the source pieces by their probabilities (equation 15).
  // Maximisation: the shares of a source piece are normalised.
  void improve(std::span<const Pair> pairs) {
    std::vector<float> counts(probabilities_.size(), 0.0f);
    // All threads find the shares of some pairs. They are added in the order of the pairs, so that no bit
    // depends on the threads.
    constexpr std::size_t at_once = std::size_t{1} << 20;
    std::vector<Share> shares;
    std::vector<std::size_t> starts;
    for (std::size_t first = 0, end = 0; first < pairs.size(); first = end) {
      starts.assign(1, 0);
      while (end < pairs.size() && starts.back() < at_once) {
        const auto& [source, target] = pairs[end++];
        starts.push_back(starts.back() + (source.size() + 1) * target.size());
      }
      shares.resize(starts.back());
      default_executor().parallel_for(std::ssize(starts) - 1, [&](std::int64_t unit, int) {
        const auto n = static_cast<std::size_t>(unit);
        share_out(pairs[first + n], shares.data() + starts[n]);
      });
      for (const Share& share : shares) counts[static_cast<std::size_t>(share.place)] += share.value;
    }
    for (std::int64_t row = 0; row <= empty_; ++row) {
      const auto [begin, end] = range(row);
      const double sum = std::accumulate(counts.begin() + begin, counts.begin() + end, 0.0);
      for (std::ptrdiff_t n = begin; n < end && sum > 0.0; ++n)
        probabilities_[static_cast<std::size_t>(n)] =
            static_cast<float>(static_cast<double>(counts[static_cast<std::size_t>(n)]) / sum);
    }
  }

  /// The most probable targets of a row, at most `most`, none less probable than `least`; ascending ids.
  std::vector<std::int32_t> best(std::int64_t row, std::int64_t most, double least) const {
    const auto [begin, end] = range(row);
    std::vector<std::ptrdiff_t> order;
    for (std::ptrdiff_t n = begin; n < end; ++n) {
      if (static_cast<double>(at(n)) >= least) order.push_back(n);
    }
    // Equally probable ones by their ids, so that the list does not depend on the sort.
    std::ranges::sort(
        order, [&](std::ptrdiff_t a, std::ptrdiff_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
    if (std::ssize(order) > most) order.resize(static_cast<std::size_t>(most));
    std::vector<std::int32_t> result;
    for (const std::ptrdiff_t n : order) result.push_back(targets_[static_cast<std::size_t>(n)]);
    std::ranges::sort(result);
    return result;
  }
  std::int64_t empty_word() const { return empty_; }

 private:
  struct Share {
    std::ptrdiff_t place;
    float value;
  };
  // What each target piece of a pair gives to each of its source pieces.
  void share_out(const Pair& pair, Share* to) const {
    for (const std::int32_t target : pair.second) {
      Share* const first = to;
      double sum = 0.0;
      for_sources(pair.first, [&](std::int64_t from) {
        to->place = place(from, target);
        sum += static_cast<double>(at(to->place));
        ++to;
      });
      for (Share* share = first; share < to; ++share)
        share->value = sum > 0.0 ? static_cast<float>(static_cast<double>(at(share->place)) / sum) : 0.0f;
    }
  }

  template <class Body>
  void for_sources(const std::vector<std::int32_t>& source, Body&& body) const {
    body(empty_);
    for (const std::int32_t piece : source) body(std::int64_t{piece});
  }
  std::pair<std::ptrdiff_t, std::ptrdiff_t> range(std::int64_t row) const {
    return {starts_[static_cast<std::size_t>(row)], starts_[static_cast<std::size_t>(row) + 1]};
  }
  std::ptrdiff_t place(std::int64_t row, std::int32_t target) const {
    const auto [begin, end] = range(row);
    return std::lower_bound(targets_.begin() + begin, targets_.begin() + end, target) - targets_.begin();
  }
  float at(std::ptrdiff_t n) const { return probabilities_[static_cast<std::size_t>(n)]; }

  std::int64_t empty_;
  std::vector<std::ptrdiff_t> starts_;
  std::vector<std::int32_t> targets_;
  std::vector<float> probabilities_;
};

std::vector<std::int32_t> most_frequent(std::span<const Pair> pairs, const ShortlistOptions& o) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(o.vocabulary), 0);
  for (const auto& [source, target] : pairs) {
    for (const std::int32_t id : target) ++counts[static_cast<std::size_t>(id)];
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < o.vocabulary; ++id) {
    if (counts[static_cast<std::size_t>(id)] > 0) ids.push_back(id);
  }
  std::ranges::stable_sort(ids, [&](std::int32_t a, std::int32_t b) {
    return counts[static_cast<std::size_t>(a)] > counts[static_cast<std::size_t>(b)];
  });
  if (std::ssize(ids) > o.always) ids.resize(static_cast<std::size_t>(o.always));
  return ids;
}

}  // namespace

Shortlist learn_shortlist(std::span<const Pair> pairs, const ShortlistOptions& o) {
  check_options(pairs, o);
  Table table(pairs, o.vocabulary);
  for (int n = 0; n < o.iterations; ++n) table.improve(pairs);
  std::vector<std::int32_t> always = most_frequent(pairs, o);
  const std::vector<std::int32_t> of_nothing =
      table.best(table.empty_word(), o.translations, o.least_probability);
  for (const auto* more : {&of_nothing, &o.also}) always.insert(always.end(), more->begin(), more->end());
  std::ranges::sort(always);
  always.erase(std::unique(always.begin(), always.end()), always.end());
  std::vector<std::vector<std::int32_t>> translations;
  for (std::int64_t piece = 0; piece < o.vocabulary; ++piece)
    translations.push_back(table.best(piece, o.translations, o.least_probability));
  return {std::move(always), translations};
}

}  // namespace fovea::models
