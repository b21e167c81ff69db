#include "fovea/train/batching.h"

#include <algorithm>
#include <numeric>

#include "fovea/core/philox.h"
#include "fovea/core/profile.h"
#include "fovea/models/decoding.h"

namespace fovea::train {
namespace {

template <class T>
void shuffle(std::vector<T>& items, PhiloxStream& random) {  // Fisher-Yates
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[random.next_below(static_cast<std::uint32_t>(i))]);
  }
}

std::int64_t width(const Example& example) {
  return static_cast<std::int64_t>(std::max(example.source.size(), example.target.size())) + 1;
}

}  // namespace

std::vector<std::vector<std::size_t>> make_batches(const std::vector<Example>& examples,
                                                   std::int64_t batch_words, std::uint64_t seed,
                                                   std::int64_t epoch, std::size_t group) {
  static constexpr ProfileLabel label{"batches of an epoch", ProfilePart::data};
  const ProfileSpan span(label);
  PhiloxStream random(seed ^ 0xB5297A4D3F84D5B5u, static_cast<std::uint64_t>(epoch) << 34);
  std::vector<std::size_t> order(examples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random);
  std::vector<std::vector<std::size_t>> batches;
  for (std::size_t begin = 0; begin < order.size(); begin += group) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, order.size()));
    std::stable_sort(first, last, [&](std::size_t a, std::size_t b) {
      const auto key = [&](std::size_t i) {
        return std::pair(examples[i].source.size(), examples[i].target.size());
      };
      return key(a) < key(b);
    });
    std::int64_t longest = 0;
    bool open = false;
    for (auto i = first; i != last; ++i) {
      longest = std::max(longest, width(examples[*i]));
      if (!open || longest * static_cast<std::int64_t>(batches.back().size() + 1) > batch_words) {
        batches.emplace_back();
        longest = width(examples[*i]);
        open = true;
      }
      batches.back().push_back(*i);
    }
  }
  shuffle(batches, random);
  return batches;
}

ShuffledBatches::ShuffledBatches(std::size_t examples, std::size_t batch_size, std::uint64_t seed)
    : batch_size_(std::min(batch_size, examples)), seed_(seed), order_(examples) {
  if (batch_size_ == 0) {
    throw InvalidArgument("ShuffledBatches", "examples, batch_size", "at least 1 each",
                          std::to_string(examples) + " and " + std::to_string(batch_size));
  }
}

std::span<const std::size_t> ShuffledBatches::operator()(std::int64_t update) {
  if (update < 1) throw InvalidArgument("ShuffledBatches", "update", "at least 1", std::to_string(update));
  const auto batches_an_epoch = static_cast<std::int64_t>(order_.size() / batch_size_);
  const std::int64_t epoch = (update - 1) / batches_an_epoch;
  if (epoch != epoch_) {
    PhiloxStream random(seed_ ^ 0x94D049BB133111EBu, static_cast<std::uint64_t>(epoch) << 34);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    shuffle(order_, random);
    epoch_ = epoch;
  }
  return std::span(order_).subspan(static_cast<std::size_t>((update - 1) % batches_an_epoch) * batch_size_,
                                   batch_size_);
}

std::vector<std::vector<std::size_t>> batches_in_order(std::size_t examples, std::size_t batch_size) {
  if (batch_size == 0) throw InvalidArgument("batches_in_order", "batch_size", "at least 1", "0");
  std::vector<std::vector<std::size_t>> batches;
  for (std::size_t i = 0; i < examples; ++i) {
    if (i % batch_size == 0) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

models::Batch gather_batch(const std::vector<Example>& examples, const std::vector<std::size_t>& indices) {
  static constexpr ProfileLabel label{"batch of sentences", ProfilePart::data};
  const ProfileSpan span(label);
  std::vector<std::vector<std::int32_t>> sources, targets;
  for (const std::size_t i : indices) {
    sources.push_back(examples[i].source);
    targets.push_back(examples[i].target);
  }
  return models::make_batch(sources, targets);
}

}  // namespace fovea::train
