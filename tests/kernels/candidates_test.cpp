// The list that make_plan chooses from: every candidate is complete, and every instruction set can run
// everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kernels/candidate.h"

namespace fovea::testing {
namespace {

using kernels::Candidate;
using kernels::Duty;
using kernels::Isa;
using kernels::QueryCounts;
using kernels::Request;
using kernels::ScoreKind;

// The requests that make_plan can make: all combinations of their members.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (std::size_t duty = 0; duty < kernels::duty_count; ++duty) {
    for (const ScoreKind score : {ScoreKind::dot, ScoreKind::additive, ScoreKind::coverage}) {
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        for (const Precision precision : {Precision::full, Precision::high, Precision::medium}) {
          for (const bool whole : {false, true}) {
            for (unsigned more = 0; more < 64; ++more) {
              Request r{
                  .duty = static_cast<Duty>(duty), .score = score, .dtype = dtype, .precision = precision};
              r.whole_row = whole || score == ScoreKind::coverage || r.duty == Duty::weights_alone ||
                            r.duty == Duty::backward_of_weights;
              r.queries_mapped = more & 1;
              r.keys_mapped = more & 2;
              r.mods = more & 4;
              r.dropout = more & 8;
              r.values = !(more & 16);
              r.parts_of_keys = more & 32;
              r.heads_of_a_key = more & 1 ? 3 : 1;
              all.push_back(r);
            }
          }
        }
      }
    }
  }
  return all;
}

template <class T>
bool has_code(const Candidate& candidate, Duty duty) {
  const kernels::Code<T>& code = candidate.code<T>();
  return is_backward(duty) ? code.backward && code.backward_bytes : code.forward && code.forward_bytes;
}

TEST(Candidates, HaveDistinctNames) {
  std::set<std::string> names;
  for (const Candidate& candidate : kernels::candidates()) {
    EXPECT_TRUE(names.insert(candidate.name).second) << candidate.name;
    EXPECT_TRUE(candidate.isa && candidate.isa->absence && candidate.refuse) << candidate.name;
    EXPECT_GT(candidate.tile_keys, 0) << candidate.name;
    const bool together = candidate.f32.forward_together || candidate.f64.forward_together;
    ASSERT_EQ(together, candidate.cached_chunk_keys != nullptr) << candidate.name;
    if (!together) continue;
    for (const std::int64_t heads : {1, 2, 8})
      EXPECT_EQ(candidate.cached_chunk_keys(heads) % candidate.tile_keys, 0) << candidate.name;
  }
  EXPECT_EQ(kernels::candidates().back().name, "reference");
}

TEST(Candidates, HaveTheCodeOfWhatTheyAccept) {
  for (const Request& request : requests()) {
    for (const Candidate& candidate : kernels::candidates()) {
      const char* reason = candidate.refuse(request);
      if (reason) {
        ASSERT_NE(std::string(reason), "") << candidate.name;
        continue;
      }
      ASSERT_TRUE(request.dtype == DType::f64 ? has_code<double>(candidate, request.duty)
                                              : has_code<float>(candidate, request.duty))
          << candidate.name;
      // Whole rows are only computed by candidates that can.
      ASSERT_TRUE(!request.whole_row || candidate.whole_rows || candidate.name == "reference")
          << candidate.name;
      if (candidate.in_16_bits && !is_backward(request.duty) &&
          candidate.in_16_bits(request) != kernels::In16Bits::nothing)
        ASSERT_TRUE(size_of(request.dtype) == 2 && !request.keys_mapped) << candidate.name;
    }
  }
}

// For every request and every count of queries, some candidate of an instruction set or of its bases accepts.
TEST(Candidates, OfEveryInstructionSetRunEverything) {
  std::set<const Isa*> sets;
  for (const Candidate& candidate : kernels::candidates()) sets.insert(candidate.isa);
  for (const Request& request : requests()) {
    for (const Isa* set : sets) {
      for (const std::int64_t queries : {1, 4, 5, 8, 9, 16, 17, 32, 33, 1000}) {
        bool any = false;
        for (const Isa* isa = set; isa; isa = isa->base) {
          for (const Candidate& candidate : kernels::candidates()) {
            if (candidate.isa != isa || candidate.refuse(request)) continue;
            const QueryCounts best = candidate.best_for ? candidate.best_for(request) : QueryCounts();
            any = any || (best.first <= queries && queries <= best.last);
          }
        }
        ASSERT_TRUE(any) << set->name << ", duty " << static_cast<int>(request.duty) << ", " << queries
                         << " queries";
      }
    }
  }
}

}  // namespace
}  // namespace fovea::testing
