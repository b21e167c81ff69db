// What both tasks of the example ask: a model reads an exercise whose last tokens are questions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remember {

/// Of one task all exercises have the same number of ids a token.
struct Exercise {
  /// [tables][length]: a token is the sum of one embedding from each table.
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::int32_t> answers;  ///< one for each of the last tokens
  /// Answers that were right until something newer was told; empty where nothing is told twice.
  std::vector<std::int32_t> outdated = {};
};

/// What a model must know of a task.
struct Vocabulary {
  struct Table {
    std::string name;
    std::int64_t size;
  };
  std::vector<Table> tables;
  std::int64_t answers;
};

}  // namespace remember
