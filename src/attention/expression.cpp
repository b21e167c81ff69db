#include "fovea/attention/expression.h"

#include <vector>

#include "attention/mask_names.h"
#include "attention/reader.h"
#include "core/shortest.h"

namespace fovea {
namespace {

// Deeper nesting than this is refused: the parser recurses, and the stack is finite. So is the depth of what
// it builds: each operator may add one.
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
    const std::string_view name = word();
    std::string known;
    for (const MaskName& row : mask_names()) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
      if (row.name != name) continue;
      at_ += name.size();
      const std::vector<std::int64_t> numbers = *row.numbers ? list(row) : std::vector<std::int64_t>();
      try {
        return row.make(numbers);
      } catch (const InvalidArgument& error) {
        throw ExpressionError(function_, begin + 1, std::string(name) + " with " + error.expected(),
                              error.argument() + " " + error.got());
      }
    }
    fail("a mask (" + known + "), '~' or '('");
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
  // 'all' is a number where it can mean something: in the sides of a window.
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

class NormalizerParser : private Reader {
 public:
  explicit NormalizerParser(std::string_view text) : Reader(text, "parse_normalizer") {}

  Normalizer whole() {
    Normalizer result;
    skip_space();
    const std::string_view name = word();
    if (name != "softmax" && name != "sink" && name != "sigmoid") fail("softmax, sink or sigmoid");
    at_ += name.size();
    if (name == "sink") result = SoftmaxWithSink{};
    if (name == "sigmoid") result = Sigmoid{take('(') ? bias() : 0.0};
    if (skip_space() != text_.size()) fail("the end");
    return result;
  }

 private:
  double bias() {
    const double value = real();
    need(')');
    return value;
  }
};

class ModParser : private Reader {
 public:
  explicit ModParser(std::string_view text) : Reader(text, "parse_mod") {}

  Mod whole() {
    const std::size_t begin = skip_space();
    try {
      Mod mod = named();
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
  Mod named() {
    const std::string_view name = word();
    const auto is = [&](std::string_view known) {
      if (name != known) return false;
      at_ += name.size();
      return true;
    };
    if (is("alibi")) return AlibiBias{};
    if (is("bias")) return DenseBias{};
    if (is("softcap")) {
      need('(');
      const SoftCap cap{real()};
      need(')');
      return cap;
    }
    if (is("relative")) {
      RelativeBias bias;
      need('(');
      bias.buckets = number("a number of buckets");
      need(',');
      bias.max_distance = number("a distance");
      need(',');
      skip_space();
      const std::string_view direction = word();
      if (direction != "causal" && direction != "bidirectional") fail("'bidirectional' or 'causal'");
      at_ += direction.size();
      if (direction == "causal") bias.direction = RelativeBias::Direction::causal;
      need(')');
      return bias;
    }
    fail("a mod (softcap, alibi, bias, relative)");
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

Normalizer parse_normalizer(std::string_view text) {
  return NormalizerParser(text).whole();
}

std::string to_string(const Normalizer& normalizer) {
  if (std::holds_alternative<SoftmaxWithSink>(normalizer)) return "sink";
  const auto* sigmoid = std::get_if<Sigmoid>(&normalizer);
  if (!sigmoid) return "softmax";
  if (sigmoid->bias == 0.0) return "sigmoid";
  return "sigmoid(" + shortest(sigmoid->bias) + ")";
}

Mod parse_mod(std::string_view text) {
  return ModParser(text).whole();
}

}  // namespace fovea
