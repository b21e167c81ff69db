#include "fovea/attention/rope.h"

#include "attention/reader.h"
#include "core/shortest.h"

namespace fovea {
namespace {

// base · factor^(d / (d - 2)) of such numbers is at most 1e90, far from the limits of double.
constexpr double largest = 1e30;
constexpr std::int64_t most_positions = std::int64_t{1} << 40;

// Checks the fields of one struct.
struct Fields {
  const char* of;

  void check(bool holds, const char* field, const char* expected, const std::string& got) const {
    if (!holds) throw InvalidArgument(of, field, expected, got);
  }
  void factor(double value) const {
    check(value >= 1.0 && value <= largest, "factor", "a number in [1, 1e30]", shortest(value));
  }
  void positive(double value, const char* field) const {
    check(value >= 1.0 / largest && value <= largest, field, "a number in [1e-30, 1e30]", shortest(value));
  }
  void positions(std::int64_t value) const {
    check(value >= 1 && value <= most_positions, "original_max_positions", "a number in [1, 2^40]",
          std::to_string(value));
  }
};

void check_scaling(const NoScaling&) {}
void check_scaling(const LinearScaling& linear) {
  Fields{"LinearScaling"}.factor(linear.factor);
}
void check_scaling(const NtkScaling& ntk) {
  Fields{"NtkScaling"}.factor(ntk.factor);
}
void check_scaling(const DynamicNtkScaling& dynamic) {
  const Fields fields{"DynamicNtkScaling"};
  fields.factor(dynamic.factor);
  fields.positions(dynamic.original_max_positions);
}
void check_scaling(const YarnScaling& yarn) {
  const Fields fields{"YarnScaling"};
  fields.factor(yarn.factor);
  fields.positions(yarn.original_max_positions);
  fields.positive(yarn.beta_fast, "beta_fast");
  fields.positive(yarn.beta_slow, "beta_slow");
  fields.check(yarn.beta_slow <= yarn.beta_fast, "beta_fast", "a number of at least beta_slow",
               shortest(yarn.beta_fast));
  if (yarn.attention_factor) fields.positive(*yarn.attention_factor, "attention_factor");
}
void check_scaling(const Llama3Scaling& llama3) {
  const Fields fields{"Llama3Scaling"};
  fields.factor(llama3.factor);
  fields.positive(llama3.low_freq_factor, "low_freq_factor");
  fields.positive(llama3.high_freq_factor, "high_freq_factor");
  fields.check(llama3.low_freq_factor < llama3.high_freq_factor, "high_freq_factor",
               "a number above low_freq_factor", shortest(llama3.high_freq_factor));
  fields.positions(llama3.original_max_positions);
}

void check_scaling(const LongRopeScaling& longrope) {
  const Fields fields{"LongRopeScaling"};
  fields.positions(longrope.original_max_positions);
  for (const double factor : longrope.short_factors) fields.positive(factor, "short_factors");
  for (const double factor : longrope.long_factors) fields.positive(factor, "long_factors");
  fields.positive(longrope.attention_factor, "attention_factor");
}

std::string print(const std::vector<double>& factors) {
  std::string text = "(";
  for (const double factor : factors) text += (text.size() > 1 ? "," : "") + shortest(factor);
  return text + ")";
}
std::string print(const LongRopeScaling& longrope) {
  std::string text = ",longrope(" + std::to_string(longrope.original_max_positions) + ",short" +
                     print(longrope.short_factors) + ",long" + print(longrope.long_factors);
  if (longrope.attention_factor != 1.0) text += ",attention=" + shortest(longrope.attention_factor);
  return text + ")";
}
std::string print(const NoScaling&) {
  return "";
}
std::string print(const LinearScaling& linear) {
  return ",linear(" + shortest(linear.factor) + ")";
}
std::string print(const NtkScaling& ntk) {
  return ",ntk(" + shortest(ntk.factor) + ")";
}
std::string print(const DynamicNtkScaling& dynamic) {
  return ",dynamic(" + shortest(dynamic.factor) + "," + std::to_string(dynamic.original_max_positions) + ")";
}
std::string print(const YarnScaling& yarn) {
  const YarnScaling usual;
  std::string text = ",yarn(" + shortest(yarn.factor) + "," + std::to_string(yarn.original_max_positions);
  if (yarn.beta_fast != usual.beta_fast) text += ",beta_fast=" + shortest(yarn.beta_fast);
  if (yarn.beta_slow != usual.beta_slow) text += ",beta_slow=" + shortest(yarn.beta_slow);
  if (yarn.attention_factor) text += ",attention=" + shortest(*yarn.attention_factor);
  if (yarn.ends == YarnScaling::Ends::exact) text += ",exact";
  return text + ")";
}
std::string print(const Llama3Scaling& llama3) {
  return ",llama3(" + shortest(llama3.factor) + "," + shortest(llama3.low_freq_factor) + "," +
         shortest(llama3.high_freq_factor) + "," + std::to_string(llama3.original_max_positions) + ")";
}

class RopeParser : private Reader {
 public:
  explicit RopeParser(std::string_view text) : Reader(text, "parse_rope") {}

  Rope whole() {
    if (!take_name("rope")) fail("'rope('");
    need('(');
    checked([&] { rope_.rotary_dim = number("an even number of elements"); });
    while (take(',')) checked([&] { part(); });
    if (!take(')')) fail("',' or ')'");
    if (skip_space() != text_.size()) fail("the end");
    return rope_;
  }

 private:
  // Reads a part and checks the rope; an error names the part's column.
  template <class Read>
  void checked(Read read) {
    const std::size_t begin = skip_space();
    read();
    try {
      check_rope(rope_);
    } catch (const InvalidArgument& error) {
      throw ExpressionError(function_, begin + 1, error.argument() + " to be " + error.expected(),
                            error.got());
    }
  }
  bool take_name(std::string_view name) {
    skip_space();
    if (text_.substr(at_, name.size()) != name) return false;
    const std::size_t end = at_ + name.size();
    if (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) return false;
    at_ = end;
    return true;
  }
  // Takes a name unless it has been taken before.
  bool take_once(std::string_view name, bool& seen) {
    if (seen || !take_name(name)) return false;
    return seen = true;
  }
  double given() {
    need('=');
    return real();
  }
  double next_real() {
    need(',');
    return real();
  }
  std::int64_t next_positions() {
    need(',');
    return number("a number of positions");
  }
  void part() {
    if (take_once("base", base_)) {
      rope_.base = given();
    } else if (take_once("half", layout_)) {
      rope_.layout = RopeLayout::half_split;
    } else if (take_once("interleaved", layout_)) {
      rope_.layout = RopeLayout::interleaved;
    } else if (!scaling()) {
      fail(
          "at most one each of base=NUMBER, half or interleaved, and linear, ntk, dynamic, yarn, llama3 or "
          "longrope");
    }
  }
  bool scaling() {
    if (scaling_) return false;
    const auto is = [&](std::string_view name) {
      if (!take_once(name, scaling_)) return false;
      need('(');
      return true;
    };
    if (is("linear")) {
      rope_.scaling = LinearScaling{real()};
    } else if (is("ntk")) {
      rope_.scaling = NtkScaling{real()};
    } else if (is("dynamic")) {
      const double factor = real();
      rope_.scaling = DynamicNtkScaling{factor, next_positions()};
    } else if (is("yarn")) {
      rope_.scaling = yarn();
    } else if (is("llama3")) {
      const double factor = real(), low = next_real(), high = next_real();
      rope_.scaling = Llama3Scaling{factor, low, high, next_positions()};
    } else if (is("longrope")) {
      rope_.scaling = longrope();
    }
    if (scaling_) need(')');
    return scaling_;
  }
  std::vector<double> factors(std::string_view name) {
    need(',');
    if (!take_name(name)) fail("the " + std::string(name) + " factors");
    need('(');
    std::vector<double> list{real()};
    while (take(',')) list.push_back(real());
    need(')');
    return list;
  }
  LongRopeScaling longrope() {
    LongRopeScaling result{.original_max_positions = number("a number of positions")};
    result.short_factors = factors("short");
    result.long_factors = factors("long");
    if (!take(',')) return result;
    if (!take_name("attention")) fail("attention=NUMBER");
    result.attention_factor = given();
    return result;
  }
  YarnScaling yarn() {
    const double factor = real();
    YarnScaling result{.factor = factor, .original_max_positions = next_positions()};
    bool fast = false, slow = false, attention = false, exact = false;
    while (take(',')) {
      if (take_once("beta_fast", fast)) {
        result.beta_fast = given();
      } else if (take_once("beta_slow", slow)) {
        result.beta_slow = given();
      } else if (take_once("attention", attention)) {
        result.attention_factor = given();
      } else if (take_once("exact", exact)) {
        result.ends = YarnScaling::Ends::exact;
      } else {
        fail("at most one each of beta_fast=NUMBER, beta_slow=NUMBER, attention=NUMBER and exact");
      }
    }
    return result;
  }

  Rope rope_;
  bool base_ = false, layout_ = false, scaling_ = false;
};

}  // namespace

void check_rope(const Rope& rope) {
  const Fields fields{"Rope"};
  fields.check(rope.rotary_dim >= 2 && rope.rotary_dim <= 65536 && rope.rotary_dim % 2 == 0, "rotary_dim",
               "an even number in [2, 65536]", std::to_string(rope.rotary_dim));
  fields.check(rope.base > 1.0 && rope.base <= largest, "base", "a number in (1, 1e30]", shortest(rope.base));
  const bool exponent = std::holds_alternative<NtkScaling>(rope.scaling) ||
                        std::holds_alternative<DynamicNtkScaling>(rope.scaling);
  fields.check(!exponent || rope.rotary_dim > 2, "rotary_dim", "more than 2 elements for NTK scaling", "2");
  std::visit([](const auto& scaling) { check_scaling(scaling); }, rope.scaling);
  const auto* longrope = std::get_if<LongRopeScaling>(&rope.scaling);
  if (!longrope) return;
  for (const auto& [name, list] :
       {std::pair{"short_factors", &longrope->short_factors}, {"long_factors", &longrope->long_factors}}) {
    if (std::ssize(*list) != rope.rotary_dim / 2)
      throw InvalidArgument("LongRopeScaling", name,
                            std::to_string(rope.rotary_dim / 2) + " numbers, one for each pair of elements",
                            std::to_string(list->size()));
  }
}

std::optional<std::int64_t> changes_behind(const Rope& rope) {
  if (const auto* dynamic = std::get_if<DynamicNtkScaling>(&rope.scaling))
    return dynamic->original_max_positions;
  const auto* longrope = std::get_if<LongRopeScaling>(&rope.scaling);
  if (longrope && longrope->short_factors != longrope->long_factors) return longrope->original_max_positions;
  return std::nullopt;
}

Rope parse_rope(std::string_view text) {
  return RopeParser(text).whole();
}

std::string to_string(const Rope& rope) {
  std::string text = "rope(" + std::to_string(rope.rotary_dim);
  if (rope.base != Rope().base) text += ",base=" + shortest(rope.base);
  if (rope.layout == RopeLayout::interleaved) text += ",interleaved";
  return text + std::visit([](const auto& scaling) { return print(scaling); }, rope.scaling) + ")";
}

}  // namespace fovea
