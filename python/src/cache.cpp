// KvCache, and the rows of its sequences as arrays. python/fovea/cache.py checks what Python brings.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/executor.h"
#include "module.h"

namespace fovea::python {
namespace {

using Ids = std::vector<std::int32_t>;

// (num_kv_heads, head_dim, value_dim, dtype, values, store, its three numbers)
CacheLayer layer_of(nb::handle given) {
  const auto number = [&](std::size_t n) { return nb::cast<std::int64_t>(given[n]); };
  const auto text = [&](std::size_t n) { return nb::cast<std::string>(given[n]); };
  const std::string values = text(4), store = text(5);
  CacheLayer layer{.num_kv_heads = number(0),
                   .head_dim = number(1),
                   .value_dim = number(2),
                   .dtype = dtype_named(text(3)),
                   .values = values == "own"             ? CacheValues::own
                             : values == "first_of_keys" ? CacheValues::first_of_keys
                                                         : CacheValues::none};
  if (store == "contiguous") layer.store = Contiguous{number(6)};
  if (store == "paged") layer.store = Paged{number(6)};
  if (store == "last_row") layer.store = LastRow{};
  if (store == "ring") layer.store = Ring{.window = number(6), .sinks = number(7), .slack = number(8)};
  return layer;
}

std::vector<Sequence*> pointers(const nb::list& sequences) {
  std::vector<Sequence*> result;
  for (const nb::handle one : sequences) result.push_back(&nb::cast<Sequence&>(one));
  return result;
}

void append(KvCache& cache, std::int64_t layer, const nb::list& sequences, nb::handle key, nb::handle value) {
  Arrays arrays("KvCache.append");
  const std::vector<Sequence*> to = pointers(sequences);
  const ConstTensorView keys = arrays.read(key, "key"), values = arrays.read(value, "value");
  // Many rows are written by the threads of the default executor. Another thread's call may have them and
  // wait for the interpreter's lock (interrupt.cpp), so this thread waits for them without it. Few rows need
  // no other threads, and another thread may keep the lock for 5 ms.
  constexpr std::int64_t least_shared = 1 << 14;  // elements
  std::optional<nb::gil_scoped_release> released;
  if ((keys ? keys.count() : 0) + (values ? values.count() : 0) >= least_shared) released.emplace();
  cache.append(layer, to, keys, values);
}

// The rows of a LastRow, one for each sequence: [sequences, ...], each of any shape and strides.
void replace(KvCache& cache, std::int64_t layer, const nb::list& sequences, nb::handle rows) {
  Arrays arrays("KvCache.replace");
  const ConstTensorView given = arrays.read(rows, "rows");
  const auto count = static_cast<std::int64_t>(nb::len(sequences));
  if (!given || given.rank() == 0 || given.size(0) != count)
    throw InvalidArgument("KvCache.replace", "rows",
                          "[" + std::to_string(count) + ", ...], a row for each sequence",
                          given ? to_string(given.shape()) : "None");
  const Tensor copy = given.contiguous() ? Tensor() : Tensor::copy_of(given);
  const ConstTensorView flat = copy ? copy.view() : given;
  cache.replace(layer, pointers(sequences),
                {flat.raw(), flat.dtype(), Shape{count, count > 0 ? flat.count() / count : 0}});
}

// Writes the committed rows into `target`, [sequences, head_dim] and contiguous. It stays as it is for a
// sequence of no tokens.
void last_rows(const KvCache& cache, std::int64_t layer, const nb::list& sequences, nb::handle target) {
  Arrays arrays("KvCache.last_row");
  const TensorView to = arrays.write(target, "rows");
  for (std::size_t n = 0; n < nb::len(sequences); ++n) {
    const ConstTensorView row = cache.last_row(layer, nb::cast<Sequence&>(sequences[n]));
    if (!row) continue;
    const Shape expected{static_cast<std::int64_t>(nb::len(sequences)), row.size(0)};
    if (!(to.shape() == expected) || to.dtype() != row.dtype() || !to.contiguous())
      throw InvalidArgument("KvCache.last_row", "rows",
                            std::string(to_string(row.dtype())) + " " + to_string(expected) + ", contiguous",
                            std::string(to_string(to.dtype())) + " " + to_string(to.shape()));
    const std::size_t bytes = static_cast<std::size_t>(row.count()) * size_of(row.dtype());
    std::memcpy(to.raw() + n * bytes, row.raw(), bytes);
  }
}

// Sequences are moved out of their Python objects and back, because a list holds them one by one.
void permute(KvCache& cache, const nb::list& sequences, const std::vector<std::int64_t>& from) {
  const std::vector<Sequence*> given = pointers(sequences);
  std::vector<Sequence> moved;
  for (Sequence* one : given) moved.push_back(std::move(*one));
  const auto back = [&] {
    for (std::size_t n = 0; n < moved.size(); ++n) {
      // An object that stands twice in the list was empty the second time.
      if (moved[n]) *given[n] = std::move(moved[n]);
    }
  };
  try {
    cache.permute(std::span<Sequence>(moved), from);  // not the one that changes the length of the list
  } catch (...) {
    back();
    throw;
  }
  back();
}

// Saves a fork, so that other threads of Python may go on with the sequence.
void save(const KvCache& cache, const Sequence& sequence, const nb::bytes& path, const std::string& note) {
  const std::string file(path.c_str(), path.size());
  KvCache same(cache);
  const Sequence copy = same.fork(sequence);
  const nb::gil_scoped_release released;
  same.save(copy, file, note);
}

Sequence load(KvCache& cache, const nb::bytes& path, const std::string& note, std::uint64_t salt,
              bool mapped) {
  const std::string file(path.c_str(), path.size());
  const nb::gil_scoped_release released;
  return cache.load(
      file, {.note = note, .salt = salt, .memory = mapped ? CacheMemory::mapped : CacheMemory::copied});
}

// The rows [begin, begin + rows) of one entry; `target` is [1, heads, rows, dim] with contiguous rows.
void copy_rows(const KeyValueView& view, std::int64_t begin, bool values, const TensorView& target) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t row_stride = values ? view.value_row_stride : view.key_row_stride, dim = target.size(3),
                     end = begin + target.size(2);
  const auto copy_head = [&](std::int64_t h) {
    for (const KeyValueRun& run : view.runs) {
      const std::int64_t first = std::max(begin, run.position),
                         last = std::min(end, run.position + run.count);
      const std::byte* from = values ? run.value : run.key;
      const std::int64_t head_stride = values ? run.value_head_stride : run.key_head_stride;
      for (std::int64_t p = first; p < last; ++p)
        std::memcpy(target.raw() + (h * target.stride(1) + (p - begin) * target.stride(2)) * element,
                    from + (h * head_stride + (p - run.position) * row_stride) * element,
                    static_cast<std::size_t>(dim * element));
    }
  };
  constexpr std::int64_t least_shared = 1 << 16;  // bytes
  Executor& executor = target.count() * element < least_shared ? serial_executor() : default_executor();
  executor.parallel_for(target.size(1), [&](std::int64_t h, int) { copy_head(h); });
}

// Writes the rows that all views have into key and value, [views, num_kv_heads, rows, dim]. Positions that
// are not kept stay as they are.
void gather(const std::vector<const KeyValueView*>& views, std::int64_t begin, nb::handle key,
            nb::handle value) {
  Arrays arrays("KvCache.rows");
  const TensorView keys = arrays.write(key, "key"), values = arrays.write(value, "value");
  const nb::gil_scoped_release released;  // as in append
  for (std::size_t n = 0; n < views.size(); ++n) {
    for (const TensorView* target : {&keys, &values}) {
      if (!*target) continue;
      const bool fits = target->rank() == 4 && target->dtype() == views[n]->dtype &&
                        target->size(0) == static_cast<std::int64_t>(views.size()) &&
                        target->size(1) == views[n]->num_kv_heads &&
                        target->size(3) == (target == &keys ? views[n]->head_dim : views[n]->value_dim) &&
                        (target->size(3) <= 1 || target->stride(3) == 1);
      if (!fits)
        throw InvalidArgument("KvCache.rows", target == &keys ? "key" : "value",
                              "an array for the rows of the layer", to_string(target->shape()));
      copy_rows(*views[n], begin, target == &values, target->slice(0, static_cast<std::int64_t>(n), 1));
    }
  }
}

nb::tuple bytes_of(const KvCache& cache) {
  const CacheBytes bytes = cache.bytes();
  return nb::make_tuple(bytes.used, bytes.prefixes, bytes.mapped, bytes.free);
}

nb::tuple bytes_of_sequence(const KvCache& cache, const Sequence& sequence) {
  const KvCache::SequenceBytes bytes = cache.bytes(sequence);
  return nb::make_tuple(bytes.used, bytes.shared);
}

}  // namespace

void bind_cache(nb::module_& module) {
  nb::class_<Sequence>(module, "Sequence", "A sequence of a cache; empty once it is released.")
      .def("__bool__", [](const Sequence& sequence) { return bool(sequence); });
  nb::class_<KeyValueView>(module, "KeyValueView", "The rows of one sequence in one layer, where they lie.")
      .def_ro("length", &KeyValueView::length);
  module.def("gather", gather, nb::arg("views"), nb::arg("begin"), nb::arg("key").none(),
             nb::arg("value").none());
  nb::class_<KvCache>(module, "KvCache", "Keys and values of sequences.")
      .def("__init__",
           [](KvCache* self, const nb::list& layers, std::int64_t limit_bytes, std::int64_t prefix_bytes) {
             KvCacheOptions options{.limit_bytes = limit_bytes, .prefix_bytes = prefix_bytes};
             for (const nb::handle layer : layers) options.layers.push_back(layer_of(layer));
             new (self) KvCache(std::move(options));
           })
      .def("start", [](KvCache& cache, const Ids& ids, std::uint64_t salt) { return cache.start(ids, salt); })
      .def("fork", &KvCache::fork)
      .def("release", &KvCache::release)
      .def("length", &KvCache::length)
      .def("pending", &KvCache::pending)
      .def("ids", &KvCache::ids)
      .def("reserve", &KvCache::reserve)
      .def("append", append, nb::arg("layer"), nb::arg("sequences"), nb::arg("key").none(),
           nb::arg("value").none())
      .def("replace", replace, nb::arg("layer"), nb::arg("sequences"), nb::arg("rows").none())
      .def("last_rows", last_rows)
      .def("view", &KvCache::view)
      .def("commit", [](KvCache& cache, Sequence& sequence, const Ids& ids) { cache.commit(sequence, ids); })
      .def("rollback", &KvCache::rollback)
      .def("truncate", &KvCache::truncate)
      .def("checkpoint", &KvCache::checkpoint)
      .def("drop",
           [](KvCache& cache, Sequence& sequence,
              const std::vector<std::pair<std::int64_t, std::int64_t>>& of) {
             std::vector<PositionRange> ranges;
             for (const auto& [begin, end] : of) ranges.push_back({begin, end});
             cache.drop(sequence, ranges);
           })
      .def("keep", [](KvCache& cache, Sequence& sequence,
                      const std::vector<std::int64_t>& path) { cache.keep(sequence, path); })
      .def("permute", permute)
      .def("find_prefix", [](const KvCache& cache, const Ids& ids,
                             std::uint64_t salt) { return cache.find_prefix(ids, salt); })
      .def("bytes", bytes_of)
      .def("bytes_of", bytes_of_sequence)
      .def("bytes_per_row", &KvCache::bytes_per_row)
      .def("save", save)
      .def("load", load);
}

}  // namespace fovea::python
