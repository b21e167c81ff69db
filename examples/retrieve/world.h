// Short reports of who gave what to whom and when, and questions about one line of a report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace retrieve {

inline constexpr std::int64_t kFacts = 4;      ///< lines of a passage
inline constexpr std::size_t kFamilySize = 8;  ///< the passage that answers, and seven that nearly do

using Ids = std::vector<std::int32_t>;

/// Passages of the same words, of which one answers the question.
struct Family {
  std::vector<Ids> passages;  ///< [kFamilySize]
  Ids question;
  std::size_t answer = 0;        ///< which passage
  std::size_t answer_begin = 0;  ///< the line of it that the question is about: first word, and
  std::size_t answer_end = 0;    ///< one past the last
};

/// Which world a family belongs to. Half of all pairs of people meet only in one world, the other half only
/// in the other. So no line of a held-out passage can occur in training.
enum class World : std::uint8_t { train, held_out };

std::int64_t vocabulary_size();
const std::string& word(std::int32_t id);
struct FamilyShape {
  std::int64_t lines = kFacts;  ///< of a passage
  /// One wrong passage has its two people exchanged; each of the other six has one part changed. With
  /// this probability the part becomes a random word, otherwise it is exchanged with that of another line.
  /// The former is easier, and a model learns it first. In a family of one line all six get a random word.
  float replaced = 0.0f;
};
/// Family `index` of stream `seed`.
Family draw_family(World world, std::uint64_t seed, std::uint64_t index, const FamilyShape& shape = {});

}  // namespace retrieve
