// Stacks of blocks that read row by row and keep what they have read in a cache.
#include <algorithm>
#include <string>
#include <utility>

#include "cache/checks.h"
#include "core/starts.h"
#include "fovea/attention/mask_definition.h"
#include "fovea/core/profile.h"
#include "nn/made.h"
#include "nn/stack_memory.h"
#include "nn/transformer_run.h"

namespace fovea::nn {
namespace {

// What a cache needs besides the rows that are copied into it. Some sequences a step make it a tenth of the
// time of small models.
constexpr ProfileLabel cache_label{"places in a cache", ProfilePart::attention};

std::vector<Sequence*> addresses(std::vector<Sequence>& sequences) {
  std::vector<Sequence*> result;
  for (Sequence& sequence : sequences) result.push_back(&sequence);
  return result;
}

// Rows of x that belong to an entry.
std::int64_t rows_of(const TransformerStack::Sequences& to, std::size_t entry, std::int64_t length) {
  return to.starts.empty() ? length : to.starts[entry + 1] - to.starts[entry];
}

// Gives back what the sequences have reserved unless their rows are committed.
class Reserved {
 public:
  explicit Reserved(const TransformerStack::Sequences& to) : to_(to) {}
  ~Reserved() {
    if (committed_) return;
    for (Sequence* sequence : to_.entries) {
      try {
        to_.cache.reserve(*sequence, 0);
      } catch (...) {  // an empty handle, which nothing was reserved for
      }
    }
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  void commit() { committed_ = true; }

 private:
  const TransformerStack::Sequences& to_;
  bool committed_ = false;
};

void check_sequences(const Var& x, const TransformerStack::Sequences& to) {
  const auto entries = static_cast<std::int64_t>(to.entries.size());
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("TransformerStack::extend", argument, std::move(expected), std::move(got));
  };
  cache::check_different(
      to.entries, [&](const char* expected, const char* got) { refuse("sequences.entries", expected, got); });
  if (x.shape().rank() != 3) refuse("x", "[B, L, dim]", to_string(x.shape()));
  if (to.starts.empty()) {
    if (x.size(0) != entries)
      refuse("x", "a batch of " + std::to_string(entries) + ", one for each sequence", to_string(x.shape()));
  } else {
    if (std::ssize(to.starts) != entries + 1)
      refuse("sequences.starts", std::to_string(entries + 1) + ", one more than there are sequences",
             std::to_string(to.starts.size()));
    if (x.size(0) != 1) refuse("x", "[1, L, dim] of a packed batch", to_string(x.shape()));
    check_starts("TransformerStack::extend", "sequences.starts", to.starts, x.size(1), " of x");
  }
  if (!to.ids.empty() && std::ssize(to.ids) != entries)
    refuse("sequences.ids", std::to_string(entries) + ", one list for each sequence, or none",
           std::to_string(to.ids.size()));
}

// Entries one behind the other that read the same entry of the memory, as the hypotheses of a beam do.
struct Readers {
  std::vector<std::int64_t> starts{0};  // of the first entry of each group, and the number of entries
  std::vector<std::size_t> reads;       // the entry of the memory that a group reads
  std::vector<std::int64_t> lengths;    // of the memory; none if the call gives none
  bool grouped() const { return std::ssize(reads) < starts.back(); }
};

Readers readers_of(std::span<const std::size_t> reads, std::span<const std::int64_t> lengths) {
  Readers result;
  for (std::size_t e = 0; e < reads.size(); ++e) {
    const bool goes_on =
        e > 0 && reads[e] == reads[e - 1] && (lengths.empty() || lengths[e] == lengths[e - 1]);
    if (goes_on) {
      ++result.starts.back();
      continue;
    }
    result.reads.push_back(reads[e]);
    if (!lengths.empty()) result.lengths.push_back(lengths[e]);
    result.starts.push_back(result.starts.back() + 1);
  }
  return result;
}

// Whether attention to the memory reads no position of its queries: then queries of several sequences may
// stand side by side as rows of one.
bool reads_no_position(const MultiHeadAttention& attention, const TransformerStack::Call& call) {
  const bool plain_mask = call.memory_mask == Mask(Everything{}) || call.memory_mask == Mask(KeyLengths{});
  return plain_mask && !attention.options().rope && attention.options().spec.mods.empty();
}

}  // namespace

std::vector<CacheLayer> TransformerStack::cache_layers(const CacheStore& store) const {
  if (merges_rows())
    throw InvalidArgument("TransformerStack::cache_layers", "spec.blocks", "blocks without merging",
                          "one that merges rows");
  if (std::ranges::any_of(layers_, [](const Layer& layer) { return layer.back.has_value(); }))
    throw InvalidArgument("TransformerStack::cache_layers", "spec.blocks",
                          "blocks whose recurrences see the past", "one that sees both sides");
  std::vector<CacheLayer> layers;
  for (const Layer& layer : layers_) layers.push_back(cache_layer(layer, store));
  for (const Layer& layer : layers_) {
    if (layer.blocks) layers.push_back(layer.blocks->open_layer());
  }
  return layers;
}

CacheLayer TransformerStack::cache_layer(const Layer& layer, const CacheStore& store) {
  if (layer.self) return layer.self->cache_layer(store);
  if (layer.blocks) return layer.blocks->finished_layer(store);
  return {.head_dim = layer.recurrent->state_size(), .values = CacheValues::none, .store = LastRow{}};
}

// The number of the layer of the cache with the open blocks of a layer that has block attention.
std::int64_t TransformerStack::open_layer(std::size_t layer) const {
  const auto before = layers_.begin() + static_cast<std::ptrdiff_t>(layer);
  return std::ssize(layers_) +
         std::count_if(layers_.begin(), before, [](const Layer& one) { return one.blocks.has_value(); });
}

// The next rows of a recurrence, whose states are rows of the cache. It reads and writes them there.
Var TransformerStack::read_recurrent(Context& context, const Layer& layer, std::int64_t number,
                                     const Var& rows, const Sequences& to, RecurrentMixer::Call call) {
  const std::int64_t size = layer.recurrent->state_size();
  KeptVector<RecurrentMixer::State> states;
  KeptVector<Tensor> unused;  // behind sequences without rows, whose states stay as they are
  for (std::size_t e = 0; e < to.entries.size(); ++e) {
    Sequence& sequence = *to.entries[e];
    const bool reads = rows_of(to, e, rows.size(1)) > 0;
    if (!reads) unused.push_back(Tensor(DType::f32, {size}));
    states.push_back({to.cache.last_row(number, sequence),
                      reads ? to.cache.next_row(number, sequence) : TensorView(unused.back())});
  }
  call.states = states;
  return (*layer.recurrent)(context, rows, call);
}

TransformerStack::Cache TransformerStack::start(Context& context, const Var& memory,
                                                const StackCacheOptions& options) const {
  Cache cache;
  cache.blocks_ = layers_.size();
  if (layers_.empty()) return cache;
  cache.rows_.emplace(
      KvCacheOptions{.layers = cache_layers(options.store), .limit_bytes = options.limit_bytes});
  if (!reads_memory()) return cache;
  if (memory.empty()) throw InvalidArgument("TransformerStack::start", "memory", "[B, M, dim]", "none");
  const Contiguous once{.capacity = std::max<std::int64_t>(memory.size(1), 1)};
  std::vector<CacheLayer> layers;
  for (const Layer& layer : layers_) {
    if (layer.memory) layers.push_back(layer.memory->cache_layer(once));
  }
  auto made = std::make_shared<Cache::Memory>(Cache::Memory{KvCache({.layers = std::move(layers)}), {}});
  for (std::int64_t b = 0; b < memory.size(0); ++b) {
    made->entries.push_back(made->rows.start());
    made->rows.reserve(made->entries.back(), memory.size(1));
  }
  const std::vector<Sequence*> entries = addresses(made->entries);
  // Products of bf16 would round the same rows in each layer.
  const bool round = !memory.recorded() && std::ranges::all_of(layers_, [&](const Layer& layer) {
    return !layer.memory || layer.memory->takes_bf16(context, MultiHeadAttention::RowsOf::memory);
  });
  const Var rows = round ? autograd::rounded(memory) : memory;
  std::int64_t number = 0;
  for (const Layer& layer : layers_) {
    if (layer.memory) layer.memory->append(context, rows, {made->rows, number++, entries});
  }
  for (Sequence& sequence : made->entries) made->rows.commit(sequence);
  for (std::size_t b = 0; b < made->entries.size(); ++b) {
    cache.sequences_.push_back(cache.rows_->start());
    cache.reads_.push_back(b);
  }
  cache.memory_ = std::move(made);
  return cache;
}

Var TransformerStack::read(Context& context, const Var& x, const Sequences& to, const Call& call,
                           const std::function<Var(const Layer&, std::size_t, const Var&)>& memory) const {
  check_made("TransformerStack", "spec", made_);
  check_sequences(x, to);
  Reserved reserved(to);
  std::vector<std::int64_t> first;  // the position of each entry's first row
  {
    const ProfileSpan span(cache_label);
    for (std::size_t e = 0; e < to.entries.size(); ++e) {
      to.cache.reserve(*to.entries[e], rows_of(to, e, x.size(1)));
      first.push_back(to.cache.length(*to.entries[e]));
    }
  }
  std::vector<KeyValueView> views(to.entries.size());
  Var first_value;  // of RWKV-7
  const auto self = [&](const Layer& layer, std::size_t i, const Var& rows) {
    const auto number = static_cast<std::int64_t>(i);
    check_mask(layer, call.mask);
    if (layer.recurrent)
      return read_recurrent(context, layer, number, rows, to,
                            {.starts = to.starts, .first = first, .first_value = &first_value});
    if (layer.blocks)
      return layer.blocks->extend(context, rows,
                                  {.cache = to.cache,
                                   .finished = number,
                                   .open = open_layer(i),
                                   .sequences = to.entries,
                                   .starts = to.starts});
    Var queries;
    layer.self->append(context, rows, {to.cache, number, to.entries}, to.starts, &queries);
    {
      const ProfileSpan span(cache_label);
      for (std::size_t e = 0; e < views.size(); ++e) views[e] = to.cache.view(number, *to.entries[e]);
    }
    return layer.self->attend_cached(context, rows, views,
                                     {.mask = call.mask,
                                      .key_lengths = call.lengths,
                                      .query_offsets = first,
                                      .query_starts = to.starts,
                                      .weights = weights_of(call, "self", i),
                                      .arguments = arguments_of(call, "self", i, rows),
                                      .queries = queries});
  };
  const auto no_merging = [](const Layer&, const Var& rows) { return rows; };
  Stream stream(x, call);
  for (std::size_t i = 0; i < layers_.size(); ++i) run(context, i, stream, self, memory, no_merging);
  const Var y = leave(context, std::move(stream));
  views.clear();  // a view that is held would make commit's pages look shared
  if (to.before_commit) to.before_commit(y);
  const ProfileSpan span(cache_label);
  to.cache.commit(to.entries, to.ids);
  reserved.commit();
  return y;
}

Var TransformerStack::extend(Context& context, const Var& x, const Sequences& sequences,
                             const Call& call) const {
  if (reads_memory())
    throw InvalidArgument("TransformerStack::extend", "sequences", "a StackCache, which has the memory",
                          "sequences of a cache, for a stack that reads a memory");
  return read(context, x, sequences, call, {});
}

Var TransformerStack::extend(Context& context, const Var& x, Cache& cache, const Call& call) const {
  check_made("TransformerStack", "spec", made_);
  if (cache.blocks_ != layers_.size())
    throw InvalidArgument("TransformerStack::extend", "cache",
                          "one made by start, of " + std::to_string(layers_.size()) + " layers",
                          std::to_string(cache.blocks_) + " layers");
  if (layers_.empty()) return leave(context, Stream(x, call));
  std::vector<Sequence> fresh;  // without a memory, the batch of the first rows says how many there are
  if (cache.sequences_.empty()) {
    for (std::int64_t b = 0; b < x.size(0); ++b) fresh.push_back(cache.rows_->start());
  }
  const std::vector<std::size_t>& reads = cache.reads_;
  std::vector<Sequence>& sequences = cache.sequences_.empty() ? fresh : cache.sequences_;
  const std::vector<Sequence*> entries = addresses(sequences);
  std::vector<std::int64_t> first;
  for (const Sequence& sequence : sequences) first.push_back(cache.rows_->length(sequence));
  std::vector<KeyValueView> views(entries.size());
  const Readers readers = readers_of(reads, call.memory_lengths);
  const auto memory = [&](const Layer& layer, std::size_t i, const Var& rows) {
    Tensor* weights = weights_of(call, "memory", i);
    auto arguments = arguments_of(call, "memory", i, rows);
    const auto number = std::count_if(layers_.begin(), layers_.begin() + static_cast<std::ptrdiff_t>(i),
                                      [](const Layer& before) { return before.memory.has_value(); });
    // The hypotheses of a beam are queries of one entry: keys and values are then read once for all of them.
    if (readers.grouped() && !weights && rows.size(1) == 1 && arguments.empty() &&
        reads_no_position(*layer.memory, call)) {
      std::vector<KeyValueView> of_groups;
      for (const std::size_t entry : readers.reads)
        of_groups.push_back(cache.memory_->rows.view(number, cache.memory_->entries[entry]));
      const std::int64_t count = rows.size(0), dim = rows.size(2);
      const Var read = layer.memory->attend_cached(
          context, reshape(rows, {1, count, dim}), of_groups,
          {.mask = call.memory_mask, .key_lengths = readers.lengths, .query_starts = readers.starts});
      return reshape(read, {count, 1, dim});
    }
    {
      const ProfileSpan span(cache_label);
      for (std::size_t e = 0; e < views.size(); ++e)
        views[e] = cache.memory_->rows.view(number, cache.memory_->entries[reads[e]]);
    }
    return layer.memory->attend_cached(context, rows, views,
                                       {.mask = call.memory_mask,
                                        .key_lengths = call.memory_lengths,
                                        .query_offsets = first,
                                        .weights = weights,
                                        .arguments = std::move(arguments)});
  };
  const Var y = read(context, x, {*cache.rows_, entries}, call, memory);
  if (cache.sequences_.empty()) cache.sequences_ = std::move(fresh);
  return y;
}

void TransformerStack::forget(Cache& cache, const Mask& mask, std::int64_t until) const {
  if (mask.node().needs_key_lengths() || mask.node().by_head())
    throw InvalidArgument(
        "TransformerStack::forget", "mask",
        "a mask that is the same for all heads and contains its lengths, because rows are dropped",
        to_string(mask));
  for (std::int64_t entry = 0; entry < cache.entries(); ++entry) {
    const std::int64_t length = cache.length(entry);
    if (until <= length) continue;
    const QueryBlock rest{.batch = entry, .query_begin = length, .query_end = until, .key_len = length};
    std::vector<PositionRange> hidden;
    for (const KeySpan& span : complement(mask.node().spans(rest).some, length))
      hidden.push_back({span.begin, span.end});
    cache.rows().drop(cache.sequence(entry), hidden);
  }
}

}  // namespace fovea::nn
