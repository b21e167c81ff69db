// Entries of a cached call that run in one call of the kernel. Every row has the bits that it has in a call
// of its own, so nothing has to be declared, and entries may be left out where memory is short. There are two
// reasons to run together:
// - Entries have keys in common: forks, beams, and texts whose prompts begin alike. What they share is found
//   by where it lies in memory and is read once for all of them (Hydragen, Juravsky et al. 2024, arXiv
//   2402.05099).
// - Entries have few keys, as the sentences of a translator do. A call of its own would make views and a
//   problem for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/packed.h"

namespace fovea {

/// The most bytes that entries which run together may take beside what single entries need. More of them run
/// group after group.
inline constexpr std::size_t most_together_bytes = std::size_t{64} << 20;

/// Whether the step's kernel reads keys that entries of a cached call share once for all of them.
bool runs_together(const AttentionPlan::Impl& plan, const Step& step);

/// The entries of a call that have keys in common with another one, or few keys.
class JointEntries {
 public:
  /// `outputs`: the results that the call writes.
  JointEntries(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
               const PackedBatch& batch);
  std::int64_t count() const { return count_; }
  /// Bytes for all of them, or for as many as fit into `most`; 0 where not even two do.
  std::size_t bytes(int threads, std::size_t most) const;
  /// Runs as many as the memory allows.
  void run(Executor& executor, std::span<std::byte> memory);
  /// Whether `run` has run an entry.
  bool has_run(std::int64_t entry) const {
    return count_ > 0 && has_run_[static_cast<std::size_t>(entry)] != 0;
  }

 private:
  template <class T>
  void run_as(std::int64_t first, std::int64_t count, Executor& executor, std::span<std::byte> memory);
  bool is_short(std::int64_t entry) const;
  bool differ_by_rows_alone() const;
  std::size_t bytes_of(std::int64_t count, int threads) const;
  void run_group(std::int64_t first, std::int64_t count, Executor& executor, std::span<std::byte> memory);

  const AttentionPlan::Impl& plan_;
  const Call& call_;
  const AttentionOutputs& outputs_;
  const PackedBatch& batch_;
  const Step* step_ = nullptr;
  // The lists are thread-local to the thread that made this object. Other threads call has_run, so it reads
  // them through a span.
  std::int64_t count_ = 0;
  std::span<std::uint8_t> has_run_ = {};
  CallSizes largest_;
};

/// Bytes that are enough for the entries of every call of the plan.
std::size_t together_bytes(const AttentionPlan::Impl& plan, int threads);

}  // namespace fovea
