// The tests of jinja2: what stands behind `is`.
#include <algorithm>

#include "core/excerpt.h"
#include "text/jinja/machine.h"
#include "text/jinja/strings.h"

namespace fovea::text::jinja {
namespace {

bool divides(Machine& m, const Value& value, const Value& by) {
  return equal(m.binary(Operator::modulo, value, by), std::int64_t{0}, m.budget());
}

bool is_sequence(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->kind <= Sequence::Kind::range;
  return value.is_undefined() || value.text() || value.dict();
}

bool same(const Value& a, const Value& b) {
  if (a.variant().index() != b.variant().index()) return false;
  if (a.is_none()) return true;
  if (a.as<bool>()) return *a.as<bool>() == *b.as<bool>();
  fail("'sameas' of other than true, false and none is not done here");
}

template <Class of>
bool is_class(Machine& m, const Value& value) {
  const std::string text = to_text(value, m.budget());
  m.budget().spend(text.size() / 8);
  return is_of(text, of);
}

bool (*unary_test(std::string_view name))(Machine&, const Value&) {
  using Test = bool (*)(Machine&, const Value&);
  static constexpr std::pair<std::string_view, Test> tests[] = {
      {"boolean", [](Machine&, const Value& v) { return v.as<bool>() != nullptr; }},
      {"callable", [](Machine&, const Value& v) { return v.is_undefined() || v.pointer<Function>(); }},
      {"defined", [](Machine&, const Value& v) { return !v.is_undefined(); }},
      {"escaped", [](Machine&, const Value& v) { return v.is_safe(); }},
      {"even", [](Machine& m, const Value& v) { return divides(m, v, std::int64_t{2}); }},
      {"false", [](Machine&, const Value& v) { return v.as<bool>() && !*v.as<bool>(); }},
      {"float", [](Machine&, const Value& v) { return v.as<double>() != nullptr; }},
      {"integer", [](Machine&, const Value& v) { return v.as<std::int64_t>() != nullptr; }},
      {"iterable",
       [](Machine&, const Value& v) {
         return v.is_undefined() || v.text() || v.sequence() || v.dict() || v.pointer<Loop>();
       }},
      {"lower", is_class<Class::lower>},
      {"mapping", [](Machine&, const Value& v) { return v.dict() != nullptr; }},
      {"none", [](Machine&, const Value& v) { return v.is_none(); }},
      {"number", [](Machine&, const Value& v) { return v.is_number(); }},
      {"odd",
       [](Machine& m, const Value& v) {
         return equal(m.binary(Operator::modulo, v, std::int64_t{2}), std::int64_t{1}, m.budget());
       }},
      {"sequence", [](Machine&, const Value& v) { return is_sequence(v); }},
      {"string", [](Machine&, const Value& v) { return v.text() != nullptr; }},
      {"true", [](Machine&, const Value& v) { return v.as<bool>() && *v.as<bool>(); }},
      {"undefined", [](Machine&, const Value& v) { return v.is_undefined(); }},
      {"upper", is_class<Class::upper>}};
  for (const auto& [known, test] : tests) {
    if (known == name) return test;
  }
  return nullptr;
}

std::optional<Operator> comparison(std::string_view name) {
  static constexpr std::pair<std::string_view, Operator> names[] = {
      {"==", Operator::equal},         {"eq", Operator::equal},
      {"equalto", Operator::equal},    {"!=", Operator::not_equal},
      {"ne", Operator::not_equal},     {">", Operator::greater},
      {"gt", Operator::greater},       {"greaterthan", Operator::greater},
      {">=", Operator::greater_equal}, {"ge", Operator::greater_equal},
      {"<", Operator::less},           {"lt", Operator::less},
      {"lessthan", Operator::less},    {"<=", Operator::less_equal},
      {"le", Operator::less_equal},    {"in", Operator::in}};
  for (const auto& [known, op] : names) {
    if (known == name) return op;
  }
  return std::nullopt;
}

}  // namespace

bool Machine::test(const std::string& name, const Value& value, const Arguments& arguments) {
  budget().spend(1);
  if (auto* test = unary_test(name)) {
    const Bound none(name, arguments, {});
    return test(*this, value);
  }
  if (const std::optional<Operator> op = comparison(name)) {
    const Bound bound(name, arguments, {"other"}, 1);
    return compare(*op, value, *bound[0]);
  }
  if (name == "divisibleby") {
    const Bound bound(name, arguments, {"num"}, 1);
    return divides(*this, value, *bound[0]);
  }
  if (name == "sameas") {
    const Bound bound(name, arguments, {"other"}, 1);
    return same(value, *bound[0]);
  }
  fail("the test '" + excerpt(name) + "' is not done here");
}

}  // namespace fovea::text::jinja
