// The filters of jinja2 that chat templates use, with its arguments.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/excerpt.h"
#include "text/jinja/machine.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace fovea::text::jinja {
namespace {

using Kind = Sequence::Kind;

// As jinja2's soft_str: the text of any value.
Value soft_text(Machine& m, const Value& value) {
  return value.text() ? value : m.maker().text(to_text(value, m.budget()));
}
std::string soft(Machine& m, const Value& value, std::string_view filter) {
  return plain_text(soft_text(m, value), filter);
}
// For a text that is about to be changed: copies of it are made that are not counted until they are kept,
// and a changed letter can take three bytes for two.
std::string soft_to_change(Machine& m, const Value& value, std::string_view filter) {
  std::string text = soft(m, value, filter);
  m.budget().check_room(text.size(), 3);
  return text;
}

Value small(const Value& value, Machine& m) {
  return value.text() ? m.maker().text(lower_case(*value.text())) : value;
}

// "a.b.0" as the steps to a member.
std::vector<Value> steps_of(Machine& m, const Value* attribute) {
  if (!attribute || attribute->is_none()) return {};
  if (!attribute->text()) return {*attribute};
  std::vector<Value> steps;
  m.budget().spend(attribute->text()->size() / 8);
  for (const std::string_view part : split(*attribute->text(), ".", -1, m.budget())) {
    m.budget().keep(2 * sizeof(Value));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!part.empty() && error == std::errc() && end == part.data() + part.size() && part[0] != '-')
      steps.emplace_back(number);
    else
      steps.push_back(m.maker().text(std::string(part)));
  }
  return steps;
}

Value member(Machine& m, Value value, const std::vector<Value>& steps, const Value* otherwise = nullptr) {
  for (const Value& step : steps) {
    value = m.item(value, step);
    if (otherwise && value.is_undefined()) value = *otherwise;
  }
  return value;
}

bool has_nan(Machine& m, const Value& value) {
  m.budget().spend(1);
  if (const double* number = value.as<double>()) return std::isnan(*number);
  const Sequence* sequence = value.sequence();
  return sequence &&
         std::ranges::any_of(sequence->items, [&](const Value& item) { return has_nan(m, item); });
}

// Sorts by keys; equal ones keep their order, also in reverse.
std::vector<Value> sorted(Machine& m, std::vector<Value> items, const std::vector<Value>& keys,
                          bool reverse) {
  m.budget().spend(items.size());
  m.budget().check_room(items.size(), sizeof(Value) + 2 * sizeof(std::size_t));
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // The place of a NaN, which is neither less nor greater, would depend on the algorithm.
  for (const Value& key : keys) {
    if (has_nan(m, key)) fail("sort() of a NaN is not done here");
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return reverse ? less(keys[b], keys[a], m.budget()) : less(keys[a], keys[b], m.budget());
  });
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(std::move(items[i]));
  return result;
}

Value abs(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (const std::int64_t* whole = value.integer())
    return *whole < 0 ? m.binary(Operator::subtract, std::int64_t{0}, *whole) : Value(*whole);
  if (!value.is_number()) fail("abs() of a " + type_name(value));
  return std::abs(value.number());
}

Value batch(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t count = bound.integer(0, 0);
  std::vector<Value> rows, row;
  const auto end_row = [&] { rows.push_back(m.maker().list(std::exchange(row, {}))); };
  for (Value& item : items_of(value, m.maker())) {
    if (std::ssize(row) == count) end_row();
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (bound[1] && !bound[1]->is_none()) {
      const auto places = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
      m.budget().check_room(places, 2 * sizeof(Value));
      m.budget().spend(places / 8);
      while (std::ssize(row) < count) row.push_back(*bound[1]);
    }
    end_row();
  }
  return m.maker().sequence(Kind::generator, std::move(rows));
}

Value capitalize_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("capitalize", arguments, {});
  return m.maker().text(capitalize(soft_to_change(m, value, "capitalize")));
}

Value default_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(bound.flag(1) && !truth(value))) return value;
  return bound[0] ? *bound[0] : m.maker().text("");
}

Value dictsort(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!value.dict()) fail("dictsort() of a " + type_name(value));
  const std::string* by = bound.text(1);
  if (by && *by != "key" && *by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> items, keys;
  for (const auto& [key, member] : value.dict()->items) {
    items.push_back(m.maker().pair(key, member));
    const Value& sorts = by && *by == "value" ? member : key;
    keys.push_back(bound.flag(0) ? sorts : small(sorts, m));
  }
  return m.maker().list(sorted(m, std::move(items), keys, bound.flag(2)));
}

Value escape_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (value.is_safe()) return value;
  // An empty safe text and this one: `+` escapes the second.
  return m.binary(Operator::add, m.maker().text("", true), m.maker().text(to_text(value, m.budget())));
}

Value first(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (auto* generator = value.pointer<Sequence>(); generator && generator->kind == Kind::generator) {
    if (generator->failure) fail(*generator->failure);
    if (generator->read < generator->items.size()) return generator->items[generator->read++];
  } else {
    const std::vector<Value> items = items_of(value, m.maker());
    if (!items.empty()) return items.front();
  }
  return m.maker().undefined("No first item, sequence was empty.");
}

Value last(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (const Sequence* sequence = value.sequence(); sequence && sequence->kind == Kind::generator)
    fail("last() of a generator: `| list` makes a list of it");
  const std::vector<Value> items = items_of(value, m.maker());
  return items.empty() ? m.maker().undefined("No last item, sequence was empty.") : items.back();
}

std::optional<double> parsed_real(const std::string& text) {
  const std::string trimmed(strip(text, Side::both));
  const std::string lower = lower_case(trimmed);
  const std::string unsigned_text = lower.substr(lower.starts_with('-') || lower.starts_with('+') ? 1 : 0);
  const bool word = unsigned_text == "inf" || unsigned_text == "infinity" || unsigned_text == "nan";
  if (!word && lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  if (trimmed.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(trimmed.c_str(), &end);
  return end == trimmed.c_str() + trimmed.size() ? std::optional(value) : std::nullopt;
}

Value truncated(double number, const Value& otherwise) {
  if (!std::isfinite(number)) return otherwise;
  if (std::abs(number) >= 0x1p63) fail("a whole number beyond 64 bits");
  return static_cast<std::int64_t>(number);
}

Value int_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (bound.integer(1, 10) != 10) fail("int() of another base than 10 is not done here");
  const Value otherwise = bound[0] ? *bound[0] : Value(std::int64_t{0});
  if (value.integer()) return *value.integer();
  if (value.as<double>()) return truncated(value.number(), otherwise);
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (!value.text()) return otherwise;
  m.budget().spend(value.text()->size() / 4);
  const std::string trimmed(strip(*value.text(), Side::both));
  std::int64_t whole = 0;
  const char* begin = trimmed.c_str() + (trimmed.starts_with('+') && !trimmed.starts_with("+-") ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, trimmed.c_str() + trimmed.size(), whole);
  if (error == std::errc::result_out_of_range) fail("a whole number beyond 64 bits");
  if (error == std::errc() && end == trimmed.c_str() + trimmed.size()) return whole;
  if (trimmed.find('_') != std::string::npos) fail("int() of digits with underscores is not done here");
  const std::optional<double> real = parsed_real(trimmed);
  return real ? truncated(*real, otherwise) : otherwise;
}

Value float_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  const Value otherwise = bound[0] ? *bound[0] : Value(0.0);
  if (value.is_number()) return value.number();
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (!value.text()) return otherwise;
  if (value.text()->find('_') != std::string::npos)
    fail("float() of digits with underscores is not done here");
  m.budget().spend(value.text()->size() / 4);
  const std::optional<double> real = parsed_real(*value.text());
  return real ? Value(*real) : otherwise;
}

Value format_filter(Machine& m, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty()) fail("format() with names is not done here");
  return m.binary(Operator::modulo, soft_text(m, value),
                  m.maker().sequence(Kind::tuple, arguments.positional));
}

Value indent(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  m.budget().check_room(plain_text(value, "indent").size() + 1, 2);
  const std::string text = plain_text(value, "indent") + "\n";
  std::string before;
  if (bound[0] && bound[0]->text()) {
    before = to_text(*bound[0], m.budget());
  } else {
    const std::int64_t width = std::max<std::int64_t>(bound.integer(0, 4), 0);
    m.budget().keep(static_cast<std::size_t>(width));
    before.assign(static_cast<std::size_t>(width), ' ');
  }
  std::string result;
  const std::vector<std::string_view> lines = split_lines(text, false, m.budget());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i == 0 ? bound.flag(1) : bound.flag(2) || !lines[i].empty()) {
      m.budget().keep(before.size());
      result += before;
    }
    result += lines[i];
  }
  return m.maker().text(std::move(result));
}

Value items_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, member] : dict->items) items.push_back(m.maker().pair(key, member));
  } else if (!value.is_undefined()) {
    fail("Can only get item pairs from a mapping.");
  }
  return m.maker().sequence(Kind::generator, std::move(items));
}

Value join(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string between = bound[0] ? to_text(*bound[0], m.budget()) : "";
  const std::vector<Value> steps = steps_of(m, bound[1]);
  std::string result;
  bool begun = false;
  for (const Value& item : items_of(value, m.maker())) {
    const std::string part = to_text(member(m, item, steps), m.budget());
    m.budget().keep(between.size() + part.size());
    if (std::exchange(begun, true)) result += between;
    result += part;
  }
  return m.maker().text(std::move(result));
}

Value length(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {});
  return length_of(value);
}

Value list(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return m.maker().list(items_of(value, m.maker()));
}

Value lower(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("lower", arguments, {});
  return m.maker().text(lower_case(soft_to_change(m, value, "lower")));
}

// The arguments from `first` on.
Arguments rest_of(Machine& m, const Arguments& arguments, std::size_t first) {
  const std::size_t count = arguments.positional.size() - first + arguments.named.size();
  m.budget().spend(1 + count / 8);
  m.budget().keep(sizeof(Value) * count);
  for (const auto& [name, value] : arguments.named) m.budget().keep(name.size() + sizeof name);
  return {{arguments.positional.begin() + static_cast<std::ptrdiff_t>(first), arguments.positional.end()},
          arguments.named};
}

Value map(Machine& m, const Value& value, const Arguments& arguments) {
  std::vector<Value> items = truth(value) ? items_of(value, m.maker()) : std::vector<Value>();
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const std::vector<Value> steps = steps_of(m, bound[0]);
    const Value* otherwise = bound[1] && !bound[1]->is_none() ? bound[1] : nullptr;
    for (Value& item : items) item = member(m, item, steps, otherwise);
  } else {
    const std::string name = plain_text(arguments.positional[0], "map");
    const Arguments rest = rest_of(m, arguments, 1);
    for (Value& item : items) item = m.filter(name, item, rest);
  }
  return m.maker().sequence(Kind::generator, std::move(items));
}

// The first of the items that are least, or greatest.
Value extreme(Machine& m, const Value& value, const Arguments& arguments, bool greatest) {
  const Bound bound(greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> steps = steps_of(m, bound[1]);
  const auto key_of = [&](const Value& item) {
    const Value key = member(m, item, steps);
    return bound.flag(0) ? key : small(key, m);
  };
  std::vector<Value> items = items_of(value, m.maker());
  if (items.empty()) return m.maker().undefined("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  Value best_key = key_of(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!(greatest ? less(best_key, key, m.budget()) : less(key, best_key, m.budget()))) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}
Value max(Machine& m, const Value& value, const Arguments& arguments) {
  return extreme(m, value, arguments, true);
}
Value min(Machine& m, const Value& value, const Arguments& arguments) {
  return extreme(m, value, arguments, false);
}

enum class Keeps : std::uint8_t { passing, failing };
Value filtered(Machine& m, const Value& value, const Arguments& arguments, Keeps keeps, bool by_member) {
  std::vector<Value> items, steps;
  std::size_t at = 0;
  if (by_member) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    steps = steps_of(m, &arguments.positional[at++]);
  }
  std::string name;
  Arguments rest;
  if (at < arguments.positional.size()) {
    name = plain_text(arguments.positional[at++], "select");
    rest = rest_of(m, arguments, at);
  }
  for (Value& item : truth(value) ? items_of(value, m.maker()) : std::vector<Value>()) {
    const Value tested = member(m, item, steps);
    if ((name.empty() ? truth(tested) : m.test(name, tested, rest)) == (keeps == Keeps::passing))
      items.push_back(std::move(item));
  }
  return m.maker().sequence(Kind::generator, std::move(items));
}
Value select(Machine& m, const Value& value, const Arguments& arguments) {
  return filtered(m, value, arguments, Keeps::passing, false);
}
Value reject(Machine& m, const Value& value, const Arguments& arguments) {
  return filtered(m, value, arguments, Keeps::failing, false);
}
Value selectattr(Machine& m, const Value& value, const Arguments& arguments) {
  return filtered(m, value, arguments, Keeps::passing, true);
}
Value rejectattr(Machine& m, const Value& value, const Arguments& arguments) {
  return filtered(m, value, arguments, Keeps::failing, true);
}

Value replace_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = to_text(value, m.budget()), old = to_text(*bound[0], m.budget()),
                    with = to_text(*bound[1], m.budget());
  const std::int64_t most = bound[2] && !bound[2]->is_none() ? bound.integer(2, -1) : -1;
  m.budget().spend(text.size() / 4);
  return m.maker().text(replace(text, old, with, most, m.budget()));
}

Value reverse(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  std::vector<Value> items = items_of(value, m.maker());
  std::ranges::reverse(items);
  if (!value.text()) return m.maker().sequence(Kind::generator, std::move(items));
  std::string text;
  for (const Value& item : items) text += *item.text();
  return m.maker().text(std::move(text), value.is_safe());
}

// Half to even, of the exact binary value, as Python rounds.
double rounded(double number, int digits) {
  if (std::abs(number) >= 0x1p53) return number;  // a whole number
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, number);
  return std::strtod(buffer, nullptr);
}

Value round(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::int64_t digits = bound.integer(0, 0);
  const std::string* method = bound.text(1);
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (!value.is_number()) fail("round() of a " + type_name(value));
  if (digits < 0 || digits > 22) fail("round() to other than 0 to 22 digits is not done here");
  if (!method || *method == "common") {
    if (value.integer()) return *value.integer();
    if (!std::isfinite(value.number())) return value;
    m.budget().spend(10);  // decimal and back takes as long as some ten steps
    return rounded(value.number(), static_cast<int>(digits));
  }
  if (*method != "ceil" && *method != "floor") fail("method must be common, ceil or floor");
  const double power = std::pow(10.0, static_cast<double>(digits)), scaled = value.number() * power;
  return (*method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power;
}

Value safe(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return m.maker().text(to_text(value, m.budget()), true);
}

Value sort(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::vector<Value>> parts;
  if (bound[2] && bound[2]->text()) {
    for (const std::string_view part : split(*bound[2]->text(), ",", -1, m.budget())) {
      m.budget().keep(2 * sizeof(std::vector<Value>));
      const Value attribute = m.maker().text(std::string(part));
      parts.push_back(steps_of(m, &attribute));
    }
  } else {
    parts.push_back(steps_of(m, bound[2]));
  }
  std::vector<Value> items = items_of(value, m.maker()), keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const std::vector<Value>& steps : parts) {
      const Value part = member(m, item, steps);
      key.push_back(bound.flag(1) ? part : small(part, m));
    }
    keys.push_back(m.maker().list(std::move(key)));  // as lists, equal keys need no order
  }
  return m.maker().list(sorted(m, std::move(items), keys, bound.flag(0)));
}

Value string(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return soft_text(m, value);
}

Value sum(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const std::vector<Value> steps = steps_of(m, bound[0]);
  Value total = bound[1] ? *bound[1] : Value(std::int64_t{0});
  if (total.text()) fail("sum() can't sum strings");
  for (const Value& item : items_of(value, m.maker()))
    total = m.binary(Operator::add, total, member(m, item, steps));
  return total;
}

bool begins_word(std::string_view character) {
  return std::string_view("-({[<").find(character) != std::string_view::npos ||
         strip(character, Side::both).empty();
}

// Not Python's title(): words are what blanks, hyphens and opening brackets divide.
Value title_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("title", arguments, {});
  const std::string text = soft_to_change(m, value, "title");
  m.budget().spend(text.size() / 4);
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = byte_of(std::string_view(text).substr(at), 1);
    const std::string_view character = std::string_view(text).substr(at, first);
    const bool divides = begins_word(character);
    std::size_t end = at + first;
    while (end < text.size()) {
      const std::size_t bytes = byte_of(std::string_view(text).substr(end), 1);
      if (begins_word(std::string_view(text).substr(end, bytes)) != divides) break;
      end += bytes;
    }
    result += upper(character) + lower_case(std::string_view(text).substr(at + first, end - at - first));
    at = end;
  }
  return m.maker().text(std::move(result));
}

// transformers' own, which is json.dumps and not jinja2's.
Value tojson(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = bound.flag(0), .sort_keys = bound.flag(3)};
  std::string indent;
  if (bound[1] && !bound[1]->is_none()) {
    if (bound[1]->text()) {
      indent = *bound[1]->text();
    } else {
      const std::int64_t width = std::max<std::int64_t>(bound.integer(1, 0), 0);
      m.budget().keep(static_cast<std::size_t>(width));
      indent.assign(static_cast<std::size_t>(width), ' ');
    }
    style.indent = &indent;
    style.between = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    const std::vector<Value> separators = items_of(*bound[2], m.maker());
    if (separators.size() != 2) fail("tojson(): expected two separators");
    style.between = plain_text(separators[0], "tojson");
    style.behind_key = plain_text(separators[1], "tojson");
  }
  return m.maker().text(to_json(value, style, m.budget()));
}

Value trim(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const std::string* chars = bound.text(0);
  const std::string text = soft(m, value, "trim");
  return m.maker().text(
      std::string(chars ? strip(text, *chars, Side::both, m.budget()) : strip(text, Side::both)));
}

Value unique(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> steps = steps_of(m, bound[1]);
  std::vector<Value> kept, others;
  std::map<std::string, bool> texts;
  for (Value& item : items_of(value, m.maker())) {
    Value key = member(m, item, steps);
    if (!bound.flag(0)) key = small(key, m);
    if (key.text()) {
      m.budget().keep(key.text()->size() + 96);
      m.budget().spend(key.text()->size() / 16);
      if (!texts.emplace(*key.text(), true).second) continue;
    } else {
      if (std::ranges::any_of(others, [&](const Value& other) { return equal(other, key, m.budget()); }))
        continue;
      others.push_back(std::move(key));
    }
    kept.push_back(std::move(item));
  }
  return m.maker().sequence(Kind::generator, std::move(kept));
}

Value upper_filter(Machine& m, const Value& value, const Arguments& arguments) {
  const Bound bound("upper", arguments, {});
  return m.maker().text(upper(soft_to_change(m, value, "upper")));
}

using Filter = Value (*)(Machine&, const Value&, const Arguments&);
// In Python they fail when their items are read, and not before.
constexpr std::string_view kLazy[] = {"batch",      "items",  "map",        "reject",
                                      "rejectattr", "select", "selectattr", "unique"};
constexpr std::pair<std::string_view, Filter> kFilters[] = {{"abs", abs},
                                                            {"batch", batch},
                                                            {"capitalize", capitalize_filter},
                                                            {"count", length},
                                                            {"d", default_filter},
                                                            {"default", default_filter},
                                                            {"dictsort", dictsort},
                                                            {"e", escape_filter},
                                                            {"escape", escape_filter},
                                                            {"first", first},
                                                            {"float", float_filter},
                                                            {"format", format_filter},
                                                            {"indent", indent},
                                                            {"int", int_filter},
                                                            {"items", items_filter},
                                                            {"join", join},
                                                            {"last", last},
                                                            {"length", length},
                                                            {"list", list},
                                                            {"lower", lower},
                                                            {"map", map},
                                                            {"max", max},
                                                            {"min", min},
                                                            {"reject", reject},
                                                            {"rejectattr", rejectattr},
                                                            {"replace", replace_filter},
                                                            {"reverse", reverse},
                                                            {"round", round},
                                                            {"safe", safe},
                                                            {"select", select},
                                                            {"selectattr", selectattr},
                                                            {"sort", sort},
                                                            {"string", string},
                                                            {"sum", sum},
                                                            {"title", title_filter},
                                                            {"tojson", tojson},
                                                            {"trim", trim},
                                                            {"unique", unique},
                                                            {"upper", upper_filter}};

}  // namespace

Value filtered_by(Machine& machine, const std::string& name, const Value& value, const Arguments& arguments) {
  for (const auto& [known, filter] : kFilters) {
    if (known != name) continue;
    if (std::ranges::find(kLazy, name) == std::end(kLazy)) return filter(machine, value, arguments);
    try {
      return filter(machine, value, arguments);
    } catch (const Failure& failure) {
      machine.budget().keep(failure.reason.size() + 256);
      auto failed = std::make_shared<Sequence>();
      failed->kind = Kind::generator;
      failed->failure = std::make_shared<const std::string>(failure.reason);
      return failed;
    }
  }
  fail("the filter '" + excerpt(name) + "' is not done here");
}

}  // namespace fovea::text::jinja
