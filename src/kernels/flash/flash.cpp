// The candidates of the fused kernels: what each refuses, and when it is best.
#include "kernels/flash/flash.h"

#include <cstddef>
#include <string>
#include <utility>

namespace fovea::kernels {
namespace {

const char* refuse_direct(const Request& r) {
  return refuse_whole_row(r);
}
const char* refuse_additive(const Request& r) {
  if (const char* reason = refuse_whole_row(r)) return reason;
  return r.score == ScoreKind::additive ? nullptr : "its score is not additive";
}
// A cached row must not depend on the queries beside it. So all calls of few queries compute it alike.
QueryCounts additive_best_for(const Request& r) {
  const std::int64_t first = (least_additive_queries + r.heads_of_a_key - 1) / r.heads_of_a_key;
  return {.first = is_cached(r.duty) && first > 1 ? most_split_queries + 1 : first};
}
const char* refuse_tiled(const Request& r) {
  if (const char* reason = refuse_other_scores(r)) return reason;
  return refuse_whole_row(r);
}
const char* refuse_split(const Request& r) {
  if (is_backward(r.duty)) return "it has no backward";
  if (r.duty != Duty::forward && r.duty != Duty::forward_cached) return "it returns no weights";
  return refuse_tiled(r);
}
const char* refuse_short(const Request& r) {
  if (r.duty != Duty::forward && r.duty != Duty::backward) return "it returns no weights, and reads no cache";
  if (const char* reason = refuse_tiled(r)) return reason;
  if (r.mods) return "it has mods";
  return r.normalizer == NormalizerKind::softmax ? nullptr : "its normaliser is not softmax";
}
// In backward these algorithms recompute a row from its keys, so a call must bring all keys of the row. If
// whole rows are needed for another reason, the plan or the call itself refuses parts.
const char* refuse_rows(const Request& r) {
  const bool parts = is_backward(r.duty) && r.parts_of_keys && !r.whole_row;
  return parts ? "a call may bring only some of the keys of a row" : nullptr;
}
const char* refuse_tiled_rows(const Request& r) {
  if (const char* reason = refuse_other_scores(r)) return reason;
  return refuse_rows(r);
}

std::int64_t most_split(const Request& r) {
  return size_of(r.dtype) == 2 ? most_split_16_bit : most_split_queries;
}
std::int64_t least_packed_queries(const Request& r) {
  return (is_backward(r.duty) ? most_direct_queries : most_split(r)) + 1;
}
In16Bits split_in_16_bits(const Request& r) {
  return size_of(r.dtype) == 2 && !r.keys_mapped ? In16Bits::keys_and_values : In16Bits::nothing;
}

void add_candidates(const Isa& isa, const FlashCode<float>& f32, const FlashCode<double>& f64,
                    std::vector<Candidate>& to) {
  const auto add = [&](const char* algorithm, Candidate candidate) {
    candidate.name = std::string(isa.name) + " " + algorithm;
    candidate.isa = &isa;
    to.push_back(std::move(candidate));
  };
  add("split", {.refuse = refuse_split,
                .best_for = [](const Request& r) { return QueryCounts{.last = most_split(r)}; },
                .in_16_bits = split_in_16_bits,
                .reads_cache = true,
                .tile_keys = tile_keys,
                .cached_chunk_keys = fixed_chunk_keys,
                .f32 = f32.split,
                .f64 = f64.split});
  add("short", {.refuse = refuse_short,
                .best_for =
                    [](const Request& r) {
                      return QueryCounts{.first = least_packed_queries(r), .last = short_queries};
                    },
                .most_keys = most_short_keys,
                .block_queries = short_queries,
                .tile_keys = tile_keys,
                .f32 = f32.few,
                .f64 = f64.few});
  add("tiled", {.refuse = refuse_tiled,
                .best_for = [](const Request& r) { return QueryCounts{.first = least_packed_queries(r)}; },
                .reads_cache = true,
                .block_queries = tiled_queries,
                .tile_keys = tile_keys,
                .f32 = f32.tiled,
                .f64 = f64.tiled});
  add("additive", {.refuse = refuse_additive,
                   .best_for = additive_best_for,
                   .block_queries = direct_queries,
                   .tile_keys = tile_keys,
                   .f32 = f32.additive,
                   .f64 = f64.additive});
  add("direct", {.refuse = refuse_direct,
                 .block_queries = direct_queries,
                 .tile_keys = tile_keys,
                 .f32 = f32.direct,
                 .f64 = f64.direct});
  add("tiled rows", {.refuse = refuse_tiled_rows,
                     .best_for = [](const Request&) { return QueryCounts{.first = most_direct_queries + 1}; },
                     .whole_rows = true,
                     .block_queries = tiled_queries,
                     .tile_keys = tile_keys,
                     .f32 = f32.tiled_rows,
                     .f64 = f64.tiled_rows});
  add("rows", {.refuse = refuse_rows,
               .whole_rows = true,
               .block_queries = direct_queries,
               .tile_keys = tile_keys,
               .f32 = f32.rows,
               .f64 = f64.rows});
}

}  // namespace

std::vector<Candidate> flash_candidates() {
  std::vector<Candidate> list;
  const std::vector<CodeOfIsa<float>> f32 = flash_f32();
  const std::vector<CodeOfIsa<double>> f64 = flash_f64();  // of the same instruction sets
  for (std::size_t n = 0; n < f32.size(); ++n) add_candidates(*f32[n].isa, f32[n].code, f64[n].code, list);
  return list;
}

}  // namespace fovea::kernels
