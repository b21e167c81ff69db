// explain and list_kernels: the kernels that run, and why no better one does.
#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "core/shortest.h"
#include "fovea/attention/expression.h"
#include "plan/call.h"
#include "plan/together.h"

namespace fovea {
namespace {

// For one block of queries: the number of tiles that some of its queries see, and that all of them see.
struct Tiles {
  std::int64_t seen = 0, full = 0;
};

Tiles count_tiles(const BlockSpans& spans, std::int64_t key_len, std::int64_t tile) {
  Tiles count;
  std::int64_t next = 0;  // tiles before this one are already counted
  for (const KeySpan& span : spans.some) {
    const std::int64_t begin = std::max(span.begin / tile, next), end = (span.end - 1) / tile + 1;
    count.seen += std::max<std::int64_t>(end - begin, 0);
    next = std::max(next, end);
  }
  for (const KeySpan& span : spans.all) {
    const std::int64_t begin = (span.begin + tile - 1) / tile,
                       end = span.end == key_len ? (key_len - 1) / tile + 1 : span.end / tile;
    count.full += std::max<std::int64_t>(end - begin, 0);
  }
  return count;
}

// The shares of tiles that are skipped, partial and full, with the tile size of the candidate that runs. If
// there are more than 4,096 blocks, every n-th block is examined, with n coprime to the blocks of an entry.
// So no block row and no head is left out.
std::string tile_share(const AttentionPlan::Impl& plan, std::span<const std::int64_t> query_offsets) {
  const AttentionShape& shape = plan.shape;
  const kernels::Candidate& candidate = *plan.choice.rule(plan.choice.main()).largest().candidate;
  const std::int64_t rows = candidate.block_queries > 0 ? candidate.block_queries
                                                        : std::max<std::int64_t>(shape.query_len, 1),
                     keys = candidate.tile_keys, blocks = (shape.query_len + rows - 1) / rows;
  const MaskNode& mask = plan.spec.mask.node();
  // Lengths that come with a call are unknown here, so entries and heads differ only by the mask.
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(shape.batch), shape.key_len);
  const std::int64_t heads = mask.by_head() ? shape.num_query_heads : 1, of_entry = heads * blocks,
                     units = shape.batch * of_entry;
  std::int64_t step = (units + 4095) / 4096;
  while (step > 1 && std::gcd(step, of_entry) != 1) ++step;
  std::int64_t total = 0;
  Tiles sum;
  for (std::int64_t unit = 0; unit < units; unit += step) {
    const std::int64_t row = unit % blocks * rows, entry = unit / of_entry;
    const std::int64_t offset =
        query_offsets.empty()
            ? shape.key_len - shape.query_len
            : query_offsets[query_offsets.size() == 1 ? 0 : static_cast<std::size_t>(entry)];
    const QueryBlock block{.batch = entry,
                           .head = unit / blocks % heads,
                           .query_begin = row + offset,
                           .query_end = std::min(row + rows, shape.query_len) + offset,
                           .key_len = shape.key_len,
                           .key_lengths = lengths};
    const Tiles tiles = count_tiles(mask.spans(block), shape.key_len, keys);
    sum.seen += tiles.seen;
    sum.full += tiles.full;
    total += (shape.key_len + keys - 1) / keys;
  }
  const auto percent = [total](std::int64_t n) {
    return std::to_string(total == 0 ? 0 : (100 * n + total / 2) / total) + " %";
  };
  return "tiles of " + std::to_string(rows) + " queries x " + std::to_string(keys) +
         " keys: " + percent(total - sum.seen) + " skipped, " + percent(sum.seen - sum.full) + " partial, " +
         percent(sum.full) + " full" + (step > 1 ? " (one block in " + std::to_string(step) + ")" : "") +
         (mask.needs_key_lengths() ? ", where no key length is shorter" : "");
}

using kernels::Duty;

// "refused amx tiles: f32 at Precision::full" on a line of its own for each reason, in the order in which
// they first occur.
std::string refusals_text(const std::string& verb, const std::vector<Refusal>& refusals) {
  std::vector<std::pair<std::string, std::string>> names_by_reason;
  for (const Refusal& refusal : refusals) {
    const auto same = std::find_if(names_by_reason.begin(), names_by_reason.end(),
                                   [&refusal](const auto& entry) { return entry.first == refusal.reason; });
    if (same == names_by_reason.end())
      names_by_reason.emplace_back(refusal.reason, refusal.candidate->name);
    else
      same->second += ", " + refusal.candidate->name;
  }
  std::string text;
  for (const auto& [reason, names] : names_by_reason) text += "\n" + verb + " " + names + ": " + reason;
  return text;
}

// The refusals of a duty that those of the main duty, and of the duties in `before`, do not say already.
std::vector<Refusal> more_refusals(const AttentionPlan::Impl& plan, Duty duty,
                                   std::initializer_list<Duty> before = {}) {
  const Requests requests = plan.requests();
  std::vector<Refusal> refusals = plan.choice.refusals(requests, plan.shape.query_len, duty);
  const auto leave_out = [&](Duty said_duty) {
    const std::vector<Refusal> said = plan.choice.refusals(requests, plan.shape.query_len, said_duty);
    std::erase_if(refusals, [&said](const Refusal& refusal) {
      return std::find(said.begin(), said.end(), refusal) != said.end();
    });
  };
  leave_out(plan.choice.main());
  for (const Duty duty_before : before) leave_out(duty_before);
  return refusals;
}

Duty backward_of(Duty main) {
  return main == Duty::forward ? Duty::backward : Duty::backward_of_weights;
}

std::string kernels_text(const AttentionPlan::Impl& plan) {
  const Duty main = plan.choice.main();
  return plan.choice.text(main) + "; backward " + plan.choice.text(backward_of(main));
}

std::string arguments_text(const AttentionPlan::Impl& plan) {
  const AttentionShape& s = plan.shape;
  const ArgumentSizes sizes = argument_sizes(plan, {s.batch, s.query_len, s.key_len});
  std::string text;
  for (const auto& [name, declaration] : plan.arguments)
    text += (text.empty() ? "\narguments: " : ", ") + name + " " + shape_text(declaration, sizes);
  return text;
}

// What runs if keys and values are in a cache; empty where that does not differ.
std::string cached_text(const AttentionPlan::Impl& plan) {
  const Choice& choice = plan.choice;
  if (choice.main() != Duty::forward || plan.score().key_rows >= 0) return {};
  const std::string output = choice.text(Duty::forward_cached), weights = choice.text(Duty::weights_cached);
  const bool other_output = output != choice.text(Duty::forward),
             other_weights = weights != choice.text(Duty::weights);
  if (!other_output && !other_weights) return {};
  return "\nkeys in a cache: " + output + (other_weights ? "; with weights " + weights : "");
}

// Which kernels read the keys that entries of a cached call share once for all of them (plan/together.h).
std::string sharing_text(const AttentionPlan::Impl& plan) {
  if (plan.shape.batch < 2 || plan.shape.value_dim == 0) return {};
  std::string names;
  for (const Step& step : plan.choice.rule(Duty::forward_cached).steps()) {
    if (runs_together(plan, step)) names += (names.empty() ? "" : ", ") + step.candidate->name;
  }
  return names.empty() ? names : "\nkeys in a cache that entries share: read once by " + names;
}

std::string weights_text(const AttentionPlan::Impl& plan) {
  return "\nweights: " + plan.choice.text(Duty::weights) +
         "\nweights alone: " + plan.choice.text(Duty::weights_alone) +
         "\nlosses of weights: " + plan.choice.text(Duty::backward_of_weights);
}

// Why no better kernels run. What one duty says, the next ones do not repeat.
std::string all_refusals_text(const AttentionPlan::Impl& plan, bool cached_differs) {
  const Duty main = plan.choice.main();
  std::string text =
      refusals_text("refused", plan.choice.refusals(plan.requests(), plan.shape.query_len, main)) +
      refusals_text("backward refused", more_refusals(plan, backward_of(main))) +
      refusals_text("weights refused", more_refusals(plan, Duty::weights)) +
      refusals_text("weights alone refused", more_refusals(plan, Duty::weights_alone, {Duty::weights})) +
      refusals_text("losses of weights refused",
                    more_refusals(plan, Duty::backward_of_weights, {Duty::weights, Duty::weights_alone}));
  if (cached_differs)
    text += refusals_text("keys in a cache refused", more_refusals(plan, Duty::forward_cached));
  return text;
}

}  // namespace

std::string explain(const AttentionPlan& plan, std::optional<std::int64_t> query_offset) {
  return query_offset ? explain(plan, std::span(&*query_offset, 1))
                      : explain(plan, std::span<const std::int64_t>());
}

std::string explain(const AttentionPlan& plan, std::span<const std::int64_t> query_offsets) {
  const AttentionPlan::Impl& impl = plan.impl();
  const AttentionShape& s = impl.shape;
  const auto count = static_cast<std::int64_t>(query_offsets.size());
  if (count > 1 && count != s.batch)
    throw InvalidArgument("explain", "query_offsets",
                          "as many offsets as batch entries, " + std::to_string(s.batch),
                          std::to_string(count));
  std::string text = kernels_text(impl) + "\n" + to_string(impl.spec.score) + " x " + shortest(impl.scale);
  for (const Mod& mod : impl.spec.mods) text += " -> " + to_string(mod);
  text += " -> " + to_string(impl.spec.mask) + " -> " + to_string(impl.spec.normalizer);
  for (const Mod& mod : impl.spec.weight_mods) text += " -> weights " + to_string(mod);
  if (impl.spec.dropout.rate > 0) text += " -> dropout " + shortest(impl.spec.dropout.rate);
  text += arguments_text(impl) + "\nbatch " + std::to_string(s.batch) + ", heads " +
          std::to_string(s.num_query_heads) + "/" + std::to_string(s.num_kv_heads) + ", queries " +
          std::to_string(s.query_len) + ", keys " + std::to_string(s.key_len) + ", head_dim " +
          std::to_string(s.head_dim) + ", value_dim " + std::to_string(s.value_dim) + ", " +
          std::string(to_string(impl.dtype));
  const std::string cached = cached_text(impl);
  return text + weights_text(impl) + cached + sharing_text(impl) + all_refusals_text(impl, !cached.empty()) +
         "\n" + tile_share(impl, query_offsets);
}

std::vector<KernelInfo> list_kernels() {
  std::vector<KernelInfo> list;
  for (const kernels::Candidate& candidate : kernels::candidates())
    list.push_back({candidate.isa->name, candidate.name, !candidate.isa->absence()});
  return list;
}

}  // namespace fovea
