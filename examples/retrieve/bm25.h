// BM25 (Robertson & Zaragoza 2009): ranking without a network, by the words that question and passage share.
// Rare words count more.
#pragma once

#include <cstdint>
#include <vector>

namespace retrieve {

class Bm25 {
 public:
  /// `passages` are word ids below `vocabulary`.
  Bm25(const std::vector<std::vector<std::int32_t>>& passages, std::int64_t vocabulary);
  /// One score a passage.
  std::vector<float> scores(const std::vector<std::int32_t>& question) const;

 private:
  std::vector<std::vector<float>> gain_;  ///< [word][passage]
};

}  // namespace retrieve
