// Python's operators.
#include <cmath>

#include "core/excerpt.h"
#include "text/jinja/machine.h"
#include "text/jinja/strings.h"

namespace fovea::text::jinja {
namespace {

constexpr const char* kNames[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

[[noreturn]] void refuse(Operator op, const Value& left, const Value& right) {
  fail(std::string("unsupported operand types for ") + kNames[static_cast<std::size_t>(op)] + ": '" +
       type_name(left) + "' and '" + type_name(right) + "'");
}

[[noreturn]] void beyond() {
  fail("a whole number beyond 64 bits");
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) beyond();
    return result;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) beyond();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) beyond();
  }
  return result;
}

Value of_integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::add:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::divide:
      if (b == 0) fail("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case Operator::floor_divide:
      return floor_divide(a, b);
    case Operator::modulo:
      if (b == -1) return std::int64_t{0};
      return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
    default:
      return power(a, b);
  }
  if (overflows) beyond();
  return result;
}

double modulo(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0.0 && (result < 0) != (b < 0)) result += b;
  return result == 0.0 ? std::copysign(0.0, b) : result;
}

// As CPython's float_floor_div.
double floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (rest < 0) != (b < 0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

Value of_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::power:
      if (a < 0 && b != std::floor(b)) fail("a root of a negative number");
      if (a == 0.0 && b < 0) fail("0.0 to a negative power");
      if (const double result = std::pow(a, b);
          std::isfinite(result) || !std::isfinite(a) || !std::isfinite(b))
        return result;
      fail("a number beyond the largest");
    default:
      if (b == 0.0) fail("division by zero");
      if (op == Operator::divide) return a / b;
      return op == Operator::modulo ? modulo(a, b) : floor_divide(a, b);
  }
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Value joined(Machine& machine, const Value& left, const Value& right) {
  if (left.is_safe() || right.is_safe()) {
    machine.budget().check_room(left.text()->size() + right.text()->size(), 5);  // &#34;
    const auto part = [](const Value& value) {
      return value.is_safe() ? *value.text() : escaped(*value.text());
    };
    return machine.maker().text(part(left) + part(right), true);
  }
  machine.budget().keep(left.text()->size() + right.text()->size());
  return machine.maker().text(*left.text() + *right.text());
}

Value repeated(Machine& machine, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (const std::string* text = value.text()) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(text->size(), count, &bytes)) beyond();
    machine.budget().keep(bytes);
    machine.budget().spend(bytes / 64);
    std::string result;
    result.reserve(bytes);
    if (!text->empty())
      for (std::size_t i = 0; i < count; ++i) result += *text;
    return machine.maker().text(std::move(result), value.is_safe());
  }
  const Sequence& sequence = *value.sequence();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(sequence.items.size() * sizeof(Value), count, &bytes)) beyond();
  machine.budget().keep(bytes);
  std::vector<Value> items;
  if (!sequence.items.empty())
    for (std::size_t i = 0; i < count; ++i)
      items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return machine.maker().sequence(sequence.kind, std::move(items));
}

bool repeats(const Value& value) {
  return value.text() || (value.sequence() && value.sequence()->kind <= Sequence::Kind::tuple);
}

// "%s, %d" % values, without widths and precisions.
Value formatted(Machine& machine, const Value& format, const Value& right) {
  const std::string& text = plain_text(format, "%");
  machine.budget().spend(text.size() / 16);
  const Sequence* several = right.sequence();
  if (several && several->kind != Sequence::Kind::tuple) several = nullptr;
  const std::size_t count = several ? several->items.size() : 1;
  std::string result;
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const char kind = i + 1 < text.size() ? text[++i] : '\0';
    if (kind == '%') {
      result += '%';
      continue;
    }
    if (std::string_view("srdi").find(kind) == std::string_view::npos)
      fail("of formats with % only %s, %r, %d and %i are done here");
    if (used == count) fail("not enough arguments for format string");
    const Value& value = several ? several->items[used] : right;
    ++used;
    if (kind == 's') {
      result += to_text(value, machine.budget());
    } else if (kind == 'r') {
      result += repr(value, machine.budget());
    } else {
      if (!value.integer()) fail("%d of a " + type_name(value));
      result += std::to_string(*value.integer());
    }
  }
  // Python takes what has members by index or key for a mapping, of which nothing need be used.
  const bool mapping =
      right.dict() || (right.sequence() && (right.sequence()->kind == Sequence::Kind::list ||
                                            right.sequence()->kind == Sequence::Kind::range));
  if (used < count && !mapping) fail("not all arguments converted during string formatting");
  return machine.maker().text(std::move(result));
}

}  // namespace

Value Machine::binary(Operator op, const Value& left, const Value& right) {
  budget().spend(1);
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) {
      if (op == Operator::modulo && left.text()) break;
      fail(*side->as<Undefined>()->reason);
    }
  }
  if (left.is_number() && right.is_number()) {
    if (left.integer() && right.integer()) return of_integers(op, *left.integer(), *right.integer());
    return of_reals(op, left.number(), right.number());
  }
  const Sequence *first = left.sequence(), *second = right.sequence();
  if (op == Operator::add) {
    if (left.text() && right.text()) return joined(*this, left, right);
    if (first && second && first->kind == second->kind && first->kind <= Sequence::Kind::tuple) {
      budget().check_room(first->items.size() + second->items.size(), 2 * sizeof(Value));
      std::vector<Value> items = first->items;
      items.insert(items.end(), second->items.begin(), second->items.end());
      return maker_.sequence(first->kind, std::move(items));
    }
  }
  if (op == Operator::multiply) {
    if (repeats(left) && right.integer()) return repeated(*this, left, *right.integer());
    if (repeats(right) && left.integer()) return repeated(*this, right, *left.integer());
  }
  if (op == Operator::modulo && left.text()) return formatted(*this, left, right);
  refuse(op, left, right);
}

namespace {

bool contains(Machine& machine, const Value& container, const Value& value) {
  Budget& budget = machine.budget();
  if (const std::string* text = container.text()) {
    if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
    if (!value.text()) fail("'in' a text: expected a text, got a " + type_name(value));
    budget.spend(1 + text->size() / 16);
    return find_first(*text, *value.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    check_key(value);
    return find(*dict, value, budget) != nullptr;
  }
  if (container.is_undefined()) return false;
  for (const Value& item : items_of(container, machine.maker())) {
    if (equal(item, value, budget)) return true;
  }
  return false;
}

}  // namespace

bool Machine::compare(Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::equal:
      return equal(left, right, budget());
    case Operator::not_equal:
      return !equal(left, right, budget());
    case Operator::less:
      return less(left, right, budget());
    case Operator::greater:
      return less(right, left, budget());
    case Operator::less_equal:
    case Operator::greater_equal: {
      const bool swapped = op == Operator::greater_equal;
      const Value &a = swapped ? right : left, &b = swapped ? left : right;
      // Not `not b < a`, which is true of a NaN.
      return less(a, b, budget()) || equal(a, b, budget());
    }
    case Operator::in:
      return contains(*this, right, left);
    default:
      return !contains(*this, right, left);
  }
}

}  // namespace fovea::text::jinja
