// Block attention that reads row by row. A cache has a row for each token, and block attention `kept` rows
// for each block. So the few rows of a block, laid one behind the other, are cut into `block` pieces, which
// become rows of the cache with the tokens of the next block. Pages then hold the few rows of one block
// behind those of another, and attention reads them there. The rows of the block that is not finished are in
// a LastRow, and so are the few rows of the block before it, whose pieces are not all in pages yet.
#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "cache/checks.h"
#include "core/pieces.h"
#include "core/starts.h"
#include "nn/block_summaries.h"
#include "nn/planned_size.h"

namespace fovea::nn {

// The elements of a row: keys and values of all heads, the logarithm of the number of rows that it stands
// for, and their mean position in the block. Zeros fill it up to a multiple of its pieces.
std::int64_t BlockAttention::row_size() const noexcept {
  const std::int64_t elements = 2 * width() + 2;
  return (elements + group() - 1) / group() * group();
}

CacheLayer BlockAttention::finished_layer(const CacheStore& store) const {
  // A page has as many rows as one of attention, because kernels read what lies in one page at once. All
  // these numbers are powers of 2, so a page has whole rows.
  const auto* paged = std::get_if<Paged>(&store);
  const std::int64_t pieces = (paged ? *paged : Paged{}).page_size * group();
  return {.head_dim = row_size() / group(),
          .value_dim = 0,
          .values = CacheValues::none,
          .store = Paged{std::min(pieces, most_of_page)}};
}

CacheLayer BlockAttention::open_layer() const {
  return {.head_dim = (options_.block + options_.kept) * row_size(),
          .values = CacheValues::none,
          .store = LastRow{}};
}

namespace {

// Elements of `count` rows of two tensors, side by side in rows of `size` elements whose last ones become 0,
// or back. A prompt of 512 tokens has 2 MB of them in a layer 512 wide.
void put_rows(const float* keys, const float* values, std::int64_t count, std::int64_t width,
              std::int64_t size, float* to) {
  for_pieces(
      count,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          std::copy_n(keys + i * width, width, to + i * size);
          std::copy_n(values + i * width, width, to + i * size + width);
          std::fill_n(to + i * size + 2 * width, size - 2 * width, 0.0f);
        }
      },
      size);
}
Tensor taken(const float* from, const Shape& shape, std::int64_t size) {
  Tensor rows(DType::f32, shape);
  for_pieces_of_rows(
      shape[0] * shape[1], shape[2], [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
        std::copy(from + i * size + begin, from + i * size + end, rows.data<float>() + i * shape[2] + begin);
      });
  return rows;
}

}  // namespace

/// One call: reads the rows of each sequence, and then lets all queries attend.
class BlockAttention::Reader {
 public:
  Reader(const BlockAttention& layer, Context& context, const Cached& to)
      : layer_(layer), context_(context), to_(to), o_(layer.options_), size_(layer.row_size()) {}

  /// Keys and values of the next rows of each sequence: of sequence e those from starts[e] on, keys and
  /// values [starts.back(), heads · head_dim].
  void read(std::span<const std::int64_t> starts, const float* keys, const float* values) {
    const std::int64_t width = layer_.width();
    std::vector<Reading> all(to_.sequences.size());
    for_sequences(starts, [&](std::size_t e) {
      Reading& reading = all[e];
      const std::int64_t first = to_.cache.length(*to_.sequences[e]), count = starts[e + 1] - starts[e];
      reading.tokens = {first, count};
      if (count > 0)
        reading.near =
            near_of(*to_.sequences[e], {first, count}, keys + starts[e] * width, values + starts[e] * width);
    });
    for (const Reading& reading : all) summarize(finished_by(reading.tokens), reading.near);
    for_sequences(starts, [&](std::size_t e) {
      if (all[e].tokens.count > 0) keep(*to_.sequences[e], all[e].near, all[e].tokens);
    });
    for (std::size_t e = 0; e < all.size(); ++e) {
      if (all[e].tokens.count > 0) add_pieces(*to_.sequences[e], all[e].near, all[e].tokens);
    }
  }

  Var attend(const Var& q) {
    std::int64_t longest = 1, most_queries = 1;
    for (const Piece& piece : pieces_) {
      longest = std::max(longest, piece.view.length);
      most_queries = std::max(most_queries, piece.queries);
    }
    const std::int64_t count = std::ssize(pieces_);
    Tensor log_sizes = Tensor::zeros(DType::f32, {count, longest}), positions = log_sizes.clone();
    std::vector<KeyValueView> views;
    std::vector<std::int64_t> starts{0};
    for (std::int64_t n = 0; n < count; ++n) {
      Piece& piece = pieces_[static_cast<std::size_t>(n)];
      describe(piece, log_sizes.data<float>() + n * longest, positions.data<float>() + n * longest);
      starts.push_back(starts.back() + piece.queries);
      views.push_back(std::move(piece.view));
    }
    autograd::AttentionCall call;
    call.query_starts = starts;
    call.cache = views;
    return layer_.attend(context_, call, log_sizes, positions,
                         with_room({.batch = count,
                                    .num_query_heads = o_.num_heads,
                                    .num_kv_heads = o_.num_heads,
                                    .query_len = most_queries,
                                    .key_len = longest,
                                    .head_dim = o_.head_dim,
                                    .value_dim = o_.head_dim}),
                         layer_.by_row_, q, {}, {});
  }

 private:
  // Rows that are not in pages: those of the block that was open with the new ones behind them; and the few
  // rows of the block before it, with those of the blocks that are finished now.
  struct Near {
    Tensor rows, few;
  };
  struct Tokens {
    std::int64_t first = 0, count = 0;
    std::int64_t end() const { return first + count; }
  };
  struct Reading {
    Tokens tokens;
    Near near;
  };
  // Queries of one sequence in one block.
  struct Piece {
    KeyValueView view;
    std::int64_t queries = 0, block = 0;  // the number of the block
  };
  struct Owners {
    std::shared_ptr<const void> pages;
    Near near;
  };

  // Calls body(e) for each sequence. A sequence copies the rows of its open block for each token.
  template <class Body>
  void for_sequences(std::span<const std::int64_t> starts, Body&& body) const {
    const std::int64_t entries = std::ssize(starts) - 1,
                       copied = (entries * o_.block + starts.back()) * size_;
    (copied <= elements_of_piece ? serial_executor() : default_executor())
        .parallel_for(entries, [&](std::int64_t e, int) { body(static_cast<std::size_t>(e)); });
  }

  // The blocks that new tokens finish.
  std::int64_t finished_by(const Tokens& tokens) const {
    return (tokens.first % o_.block + tokens.count) / o_.block;
  }

  Near near_of(const Sequence& sequence, const Tokens& tokens, const float* keys, const float* values) const {
    const std::int64_t held = tokens.first % o_.block;
    Near near{.rows = Tensor(DType::f32, {held + tokens.count, size_}),
              .few = Tensor(DType::f32, {(1 + finished_by(tokens)) * o_.kept, size_})};
    if (const ConstTensorView last = to_.cache.last_row(to_.open, sequence)) {
      std::copy_n(last.data<float>(), held * size_, near.rows.data<float>());
      std::copy_n(last.data<float>() + o_.block * size_, o_.kept * size_, near.few.data<float>());
    } else {
      std::fill_n(near.few.data<float>(), o_.kept * size_, 0.0f);
    }
    put_rows(keys, values, tokens.count, layer_.width(), size_, near.rows.data<float>() + held * size_);
    return near;
  }

  void summarize(std::int64_t blocks, const Near& near) {
    if (blocks == 0) return;
    const std::int64_t width = layer_.width();
    const Shape shape{blocks, o_.block, width};
    const float* rows = near.rows.data<float>();
    const Summaries few =
        layer_.summarized(context_, taken(rows, shape, size_), taken(rows + width, shape, size_));
    float* to = near.few.data<float>() + o_.kept * size_;
    put_rows(few.keys.value().data<float>(), few.values.value().data<float>(), blocks * o_.kept, width, size_,
             to);
    for (std::int64_t i = 0; i < blocks * o_.kept; ++i) {
      to[i * size_ + 2 * width] = few.log_sizes.data<float>()[i];
      to[i * size_ + 2 * width + 1] = few.places.data<float>()[i];
    }
  }

  // The pieces that come with the new tokens, and the rows of the block that is open now.
  void keep(Sequence& sequence, const Near& near, const Tokens& tokens) {
    const std::int64_t piece = size_ / layer_.group(), open = tokens.first / o_.block;
    Tensor pieces = Tensor::zeros(DType::f32, {1, 1, tokens.count, piece});
    for (std::int64_t t = tokens.first; t < tokens.end(); ++t) {
      if (t < o_.block) continue;  // there is no block before
      const float* few = near.few.data<float>() + (t / o_.block - open) * o_.kept * size_;
      std::copy_n(few + t % o_.block * piece, piece, pieces.data<float>() + (t - tokens.first) * piece);
    }
    to_.cache.append(to_.finished, sequence, pieces, {});
    Tensor last(DType::f32, {(o_.block + o_.kept) * size_});
    const std::int64_t held = tokens.end() % o_.block;
    std::fill_n(last.data<float>() + held * size_, (o_.block - held) * size_, 0.0f);
    std::copy_n(near.rows.data<float>() + (near.rows.size(0) - held) * size_, held * size_,
                last.data<float>());
    std::copy_n(near.few.data<float>() + (near.few.size(0) - o_.kept) * size_, o_.kept * size_,
                last.data<float>() + o_.block * size_);
    to_.cache.replace(to_.open, sequence, last);
  }

  void add_pieces(const Sequence& sequence, const Near& near, const Tokens& tokens) {
    const std::int64_t open = tokens.first / o_.block;
    const KeyValueView pages = to_.cache.view(to_.finished, sequence);
    const auto owners = std::make_shared<const Owners>(Owners{pages.owner, near});
    for (std::int64_t t = tokens.first; t < tokens.end();) {
      const std::int64_t block = t / o_.block, end = std::min(tokens.end(), (block + 1) * o_.block);
      Piece piece{.view = {}, .queries = end - t, .block = block};
      KeyValueView& view = piece.view;
      view.num_kv_heads = o_.num_heads;
      view.head_dim = view.value_dim = o_.head_dim;
      view.key_row_stride = view.value_row_stride = size_;
      view.owner = owners;
      add_pages(pages, open, view);
      const std::int64_t few = (block - open + (open > 0 ? 1 : 0)) * o_.kept;
      if (few > 0) add_run(near.few.data<float>() + (open > 0 ? 0 : o_.kept) * size_, few, view);
      add_run(near.rows.data<float>() + (block - open) * o_.block * size_, end - block * o_.block, view);
      pieces_.push_back(std::move(piece));
      t = end;
    }
  }

  // The few rows of blocks that are whole in pages: all but the last one before the block that was open.
  void add_pages(const KeyValueView& pages, std::int64_t open, KeyValueView& view) {
    for (const KeyValueRun& run : pages.runs) {
      const std::int64_t end = std::min(run.count, open * o_.block - run.position),
                         // With the first block of tokens come pieces of no block.
          begin = std::max<std::int64_t>(o_.block - run.position, 0);
      if (begin < end)
        add_run(reinterpret_cast<const float*>(run.key) + begin / layer_.group() * size_,
                (end - begin) / layer_.group(), view);
    }
    const std::int64_t whole = std::max<std::int64_t>(open - 1, 0) * o_.kept;
    if (view.length != whole)
      throw InvalidArgument("BlockAttention::extend", "to.cache", std::to_string(whole) + " rows in pages",
                            std::to_string(view.length) + ", because pages were dropped");
  }

  void add_run(const float* rows, std::int64_t count, KeyValueView& view) {
    view.runs.push_back({.position = view.length,
                         .count = count,
                         .key = reinterpret_cast<const std::byte*>(rows),
                         .value = reinterpret_cast<const std::byte*>(rows + layer_.width()),
                         .key_head_stride = o_.head_dim,
                         .value_head_stride = o_.head_dim});
    view.length += count;
  }

  // Numbers of each key of a piece. A key of its own block is at its place in the view.
  void describe(const Piece& piece, float* log_sizes, float* positions) const {
    const std::int64_t few = piece.block * o_.kept, away = piece.block * (o_.block - o_.kept),
                       width = layer_.width();
    for (const KeyValueRun& run : piece.view.runs) {
      const auto* row = reinterpret_cast<const float*>(run.key) + 2 * width;
      for (std::int64_t i = run.position; i < run.position + run.count; ++i, row += size_) {
        log_sizes[i] = i < few ? row[0] : 0.0f;
        positions[i] =
            i < few ? row[1] + static_cast<float>(i / o_.kept * o_.block - away) : static_cast<float>(i);
      }
    }
  }

  const BlockAttention& layer_;
  Context& context_;
  const Cached& to_;
  const BlockAttentionOptions& o_;
  std::int64_t size_;
  std::vector<Piece> pieces_;
};

Var BlockAttention::extend(Context& context, const Var& x, const Cached& to) const {
  if (context.training())
    throw InvalidArgument("BlockAttention::extend", "context", "one without a tape: a cache has no gradients",
                          "a tape");
  const std::int64_t entries = std::ssize(to.sequences);
  if (x.shape().rank() != 3 || x.size(0) != (to.starts.empty() ? entries : 1))
    throw InvalidArgument("BlockAttention::extend", "x",
                          to.starts.empty()
                              ? "[" + std::to_string(entries) + ", L, dim], one entry a sequence"
                              : "[1, L, dim] of a packed batch",
                          to_string(x.shape()));
  if (!to.starts.empty()) {
    if (std::ssize(to.starts) != entries + 1)
      throw InvalidArgument("BlockAttention::extend", "to.starts",
                            std::to_string(entries + 1) + ", one more than there are sequences",
                            std::to_string(to.starts.size()));
    check_starts("BlockAttention::extend", "to.starts", to.starts, x.size(1), " of x");
  }
  cache::check_different(to.sequences, [](const char* expected, const char* got) {
    throw InvalidArgument("BlockAttention::extend", "to.sequences", expected, got);
  });
  std::vector<std::int64_t> starts(to.starts.begin(), to.starts.end()), first;
  for (std::int64_t e = 0; to.starts.empty() && e <= entries; ++e) starts.push_back(e * x.size(1));
  const std::int64_t tokens = starts.back();
  std::int64_t longest = 0;
  for (std::int64_t e = 0; e < entries; ++e) {
    first.push_back(to.cache.length(*to.sequences[static_cast<std::size_t>(e)]));
    longest = std::max(longest, first.back() + starts[e + 1] - starts[e]);
  }
  const Var rows = reshape(x, {1, tokens, x.size(2)});
  Var q = query_(context, rows), k = key_(context, rows);
  const Var v = value_(context, rows);
  if (tokens == 0) return reshape(output_(context, q), x.shape());
  if (options_.rope) {
    const RopeTable table = options_.rope->table(longest);
    q = autograd::rotate_packed(q, table, options_.num_heads, starts, first);
    k = autograd::rotate_packed(k, table, options_.num_heads, starts, first);
  }
  Reader reader(*this, context, to);
  reader.read(starts, k.value().data<float>(), v.value().data<float>());
  return reshape(reader.attend(q), x.shape());
}

}  // namespace fovea::nn
