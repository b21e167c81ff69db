// BLEU (Papineni et al. 2002) exactly as sacreBLEU (Post 2018) computes it: corpus level, one reference, up
// to 4-grams, exponential smoothing of zero counts, tokenizer 13a (mteval-v13a) or none.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fovea::text {

enum class BleuTokenizer { mteval_13a, none };
enum class LetterCase { mixed, lower };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  LetterCase letter_case = LetterCase::mixed;
};

struct BleuScore {
  double score = 0;                       ///< 0 .. 100
  std::array<double, 4> precisions{};     ///< per cent, smoothed, n = 1 .. 4
  std::array<std::int64_t, 4> correct{};  ///< clipped matches
  std::array<std::int64_t, 4> total{};    ///< n-grams of the hypotheses
  double brevity_penalty = 0;
  std::int64_t sys_len = 0, ref_len = 0;  ///< tokens
  BleuOptions options;

  /// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:fovea-0.1.0".
  std::string signature() const;
  /// "BLEU = 36.05 68.1/43.2/29.0/19.8 (BP = 1.000 ratio = 1.004 hyp_len = 12117 ref_len = 12067)".
  std::string to_string() const;
};

/// Line i of `hypotheses` against line i of `references`. Throws InvalidArgument when their numbers differ or
/// are 0.
BleuScore bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
               const BleuOptions& options = {});

/// The tokens that `bleu` counts, joined by blanks.
std::string bleu_tokenize(std::string_view line, const BleuOptions& options);

}  // namespace fovea::text
