#include "fovea/attention/expression.h"

#include <vector>

#include "attention/mask_names.h"
#include "attention/names.h"
#include "attention/reader.h"
#include "core/shortest.h"

namespace fovea {
namespace {

// Deeper nesting is refused, because the parser recurses and the stack is finite. The depth of the resulting
// mask is limited too: each operator may add one.
constexpr int deepest = 200, most_operators = deepest_mask - 1;

class MaskParser : private Reader {
 public:
  explicit MaskParser(std::string_view text) : Reader(text, "parse_mask") {}

  Mask whole() {
    const Mask mask = either(0);
    if (skip_space() != text_.size()) fail("'&', '|' or the end");
    return mask;
  }

 private:
  bool take_operator(char c) {
    if (skip_space() == text_.size() || text_[at_] != c) return false;
    if (++operators_ > most_operators) fail("at most " + std::to_string(most_operators) + " operators");
    return take(c);
  }
  Mask either(int depth) {
    Mask left = both(depth);
    while (take_operator('|')) left = left | both(depth);
    return left;
  }
  Mask both(int depth) {
    Mask left = factor(depth);
    while (take_operator('&')) left = left & factor(depth);
    return left;
  }
  Mask factor(int depth) {
    if (depth > deepest) fail("at most " + std::to_string(deepest) + " nested '~' and '('");
    if (take_operator('~')) return ~factor(depth + 1);
    if (take('(')) {
      const Mask inner = either(depth + 1);
      if (!take(')')) fail("'&', '|' or ')'");
      return inner;
    }
    return named();
  }
  Mask named() {
    const std::size_t begin = skip_space();
    const MaskName& name = row(mask_names(), "a mask", ", '~' or '('");
    const std::vector<std::int64_t> numbers = *name.numbers ? list(name) : std::vector<std::int64_t>();
    try {
      return name.make(numbers);
    } catch (const InvalidArgument& error) {
      throw ExpressionError(function_, begin + 1, std::string(name.name) + " with " + error.expected(),
                            error.argument() + " " + error.got());
    }
  }
  std::vector<std::int64_t> list(const MaskName& row) {
    std::vector<std::int64_t> numbers;
    need('(');
    if (row.least == 0 && take(')')) return numbers;
    do numbers.push_back(side(row));
    while (numbers.size() < row.most && take(','));
    if (numbers.size() < row.least) fail(std::string("',': ") + row.numbers);
    if (!take(')')) fail(numbers.size() < row.most ? "',' or ')'" : "')'");
    return numbers;
  }
  // Accepts 'all' as a number where that has a meaning: for the sides of a window.
  std::int64_t side(const MaskName& row) {
    skip_space();
    const bool sides = std::string_view(row.numbers).starts_with("lookback");
    if (sides && text_.substr(at_, 3) == "all" && (at_ + 3 == text_.size() || !is_letter(text_[at_ + 3]))) {
      at_ += 3;
      return SlidingWindow::unlimited;
    }
    return number(sides ? "a count of at least 0, or 'all'" : "a number of at least 0");
  }
  int operators_ = 0;
};

class ScoreParser : private Reader {
 public:
  explicit ScoreParser(std::string_view text) : Reader(text, "parse_score") {}

  Score whole() {
    const Score score = row(score_names(), "a score").score;
    if (skip_space() != text_.size()) fail("the end");
    return score;
  }
};

class NormalizerParser : private Reader {
 public:
  explicit NormalizerParser(std::string_view text) : Reader(text, "parse_normalizer") {}

  Normalizer whole() {
    const NormalizerName& name = row(normalizer_names(), "a normaliser");
    double number = name.absent;
    if (name.number && take('(')) {
      number = real(name.number);
      need(')');
    }
    if (skip_space() != text_.size()) fail("the end");
    return name.make(number);
  }
};

class ModParser : private Reader {
 public:
  explicit ModParser(std::string_view text) : Reader(text, "parse_mod") {}

  Mod whole() {
    const std::size_t begin = skip_space();
    try {
      const ModName& name = row(mod_names(), "a mod");
      const bool bare = !name.make || (name.bare && !(skip_space() < text_.size() && text_[at_] == '('));
      const Mod mod = bare ? name.bare() : name.make(numbers(name));
      if (skip_space() != text_.size()) fail("the end");
      return mod;
    } catch (const ExpressionError&) {
      throw;
    } catch (const InvalidArgument& error) {
      throw ExpressionError(function_, begin + 1, error.argument() + " to be " + error.expected(),
                            error.got());
    }
  }

 private:
  ModNumbers numbers(const ModName& name) {
    ModNumbers numbers;
    need('(');
    for (std::size_t n = 0; n < name.numbers.size() && name.numbers[n].what; ++n) {
      if (n > 0) need(',');
      const ModNumber& wanted = name.numbers[n];
      if (wanted.kind == ModNumber::Kind::real) numbers.real[n] = real(wanted.what);
      if (wanted.kind == ModNumber::Kind::count) numbers.count[n] = number(wanted.what);
      if (wanted.kind == ModNumber::Kind::direction) numbers.direction = direction();
    }
    need(')');
    return numbers;
  }
  RelativeBias::Direction direction() {
    skip_space();
    const std::string_view name = word();
    if (name != "causal" && name != "bidirectional") fail("'bidirectional' or 'causal'");
    at_ += name.size();
    return name == "causal" ? RelativeBias::Direction::causal : RelativeBias::Direction::bidirectional;
  }
};

}  // namespace

ExpressionError::ExpressionError(std::string function, std::size_t column, std::string expected,
                                 std::string got)
    : InvalidArgument(std::move(function), "expression, column " + std::to_string(column),
                      std::move(expected), std::move(got)),
      column_(column) {}

Mask parse_mask(std::string_view text) {
  return MaskParser(text).whole();
}

Score parse_score(std::string_view text) {
  return ScoreParser(text).whole();
}

std::string to_string(const Score& score) {
  return definition(score).name;
}

Normalizer parse_normalizer(std::string_view text) {
  return NormalizerParser(text).whole();
}

std::string to_string(const Normalizer& normalizer) {
  for (const NormalizerName& row : normalizer_names()) {
    const std::optional<double> number = row.read(normalizer);
    if (!number) continue;
    const bool bare = !row.number || *number == row.absent;
    return bare ? row.name : std::string(row.name) + "(" + shortest(*number) + ")";
  }
  return {};  // every normaliser has a row, so this is never reached
}

Mod parse_mod(std::string_view text) {
  return ModParser(text).whole();
}

}  // namespace fovea
