// Values as texts: str(), repr(), JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/excerpt.h"
#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace fovea::text::jinja {

std::string repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), number, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  std::string result;
  if (text.starts_with('-')) {
    result = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const char* from = text.data() + e + 1;
  std::from_chars(*from == '+' ? from + 1 : from, text.data() + text.size(), exponent);
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (count > 1) result += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return result + "e" + (exponent < 0 ? "-" : "+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0) return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return result + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  return result + digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<std::size_t>(exponent) + 1);
}

namespace {

// Of numbers, truth values and None.
std::string plain(const Value& value) {
  if (value.is_none()) return "None";
  if (const bool* truth = value.as<bool>()) return *truth ? "True" : "False";
  if (const std::int64_t* whole = value.as<std::int64_t>()) return std::to_string(*whole);
  return repr(*value.as<double>());
}

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void write(const Value& value) {
    budget_.spend(1);
    if (const std::string* text = value.text()) {
      if (value.is_safe()) fail("the repr() of a text that is marked as safe is not done here");
      budget_.spend(text->size() / 8);
      budget_.check_room(text->size(), 4);  // \x01
      return add(jinja::quoted(*text));
    }
    if (const Sequence* sequence = value.sequence()) return write(*sequence);
    if (const Dict* dict = value.dict()) {
      add("{");
      for (std::size_t i = 0; i < dict->items.size(); ++i) {
        if (i > 0) add(", ");
        write(dict->items[i].first);
        add(": ");
        write(dict->items[i].second);
      }
      return add("}");
    }
    if (value.is_undefined()) return add("Undefined");
    if (value.is_none() || value.is_number()) return add(plain(value));
    fail("a " + type_name(value) + " is not printed here");
  }
  std::string take() { return std::move(text_); }

 private:
  void write(const Sequence& sequence) {
    using Kind = Sequence::Kind;
    if (sequence.kind == Kind::generator)
      fail("a generator is not printed here: `| list` makes a list of it");
    if (sequence.kind == Kind::range) return write_range(sequence);
    static constexpr const char* begins[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
    static constexpr const char* ends[] = {"]", ")", "", "])", "])", "])"};
    const auto kind = static_cast<std::size_t>(sequence.kind);
    add(begins[kind]);
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) add(", ");
      write(sequence.items[i]);
    }
    if (sequence.kind == Kind::tuple && sequence.items.size() == 1) add(",");
    add(ends[kind]);
  }
  // Its bounds are not known any more where it has fewer than two items.
  void write_range(const Sequence& sequence) {
    (void)sequence;
    fail("a range is not printed here: `| list` makes a list of it");
  }
  void add(std::string_view text) {
    budget_.keep(text.size());
    text_ += text;
  }

  Budget& budget_;
  std::string text_;
};

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int level) {
    budget_.spend(1);
    if (const std::string* text = value.text()) return add_quoted(*text);
    if (const Sequence* sequence = value.sequence(); sequence && sequence->kind <= Sequence::Kind::tuple)
      return write_all('[', ']', sequence->items.size(), level,
                       [&](std::size_t i) { write(sequence->items[i], level + 1); });
    if (const Dict* dict = value.dict()) return write(*dict, level);
    if (value.is_none()) return add("null");
    if (const bool* truth = value.as<bool>()) return add(*truth ? "true" : "false");
    if (value.is_number()) return add(number(value));
    fail("Object of type " + type_name(value) + " is not JSON serializable");
  }
  std::string take() { return std::move(text_); }

 private:
  static std::string number(const Value& value) {
    if (!value.as<double>()) return plain(value);
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return plain(value);
  }
  void write(const Dict& dict, int level) {
    budget_.check_room(dict.items.size(), sizeof(std::size_t));
    std::vector<std::size_t> order(dict.items.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys)
      std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return less(dict.items[a].first, dict.items[b].first, budget_);
      });
    write_all('{', '}', order.size(), level, [&](std::size_t i) {
      const auto& [key, value] = dict.items[order[i]];
      if (const std::string* text = key.text())
        add_quoted(*text);
      else if (key.is_none())
        add("\"null\"");
      else if (const bool* truth = key.as<bool>())
        add(*truth ? "\"true\"" : "\"false\"");
      else if (key.is_number())
        add("\"" + number(key) + "\"");
      else
        fail("keys must be str, int, float, bool or None, not " + type_name(key));
      add(style_.behind_key);
      write(value, level + 1);
    });
  }
  template <typename Write>
  void write_all(char begin, char end, std::size_t count, int level, const Write& write) {
    add(std::string(1, begin));
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) add(style_.between);
      new_line(level + 1);
      write(i);
    }
    if (count > 0) new_line(level);
    add(std::string(1, end));
  }
  void add_quoted(const std::string& text) {
    budget_.spend(text.size() / 8);
    budget_.check_room(text.size(), 6);  // \u0001
    add(json_quoted(text, style_.ascii));
  }
  void new_line(int level) {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level; ++i) add(*style_.indent);
  }
  void add(std::string_view text) {
    budget_.keep(text.size());
    text_ += text;
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string text_;
};

// Values while nlohmann's parser reads their text.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(Maker& maker) : maker_(maker) {}

  bool null() override { return add(None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("a whole number beyond 64 bits: " + std::to_string(value));
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos)
      fail("a whole number beyond 64 bits: " + excerpt(text));
    return add(value);
  }
  bool string(string_t& value) override { return add(maker_.text(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool key(string_t& value) override {
    if (!open_.back().keys.insert(value).second) fail("the key '" + excerpt(value) + "' stands twice");
    maker_.budget().keep(value.size() + 64);
    open_.back().members.emplace_back(maker_.text(std::move(value)), Value());
    return true;
  }
  bool end_object() override {
    Value made = maker_.dict(std::move(open_.back().members));
    open_.pop_back();
    return add(std::move(made));
  }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override {
    Value made = maker_.list(std::move(open_.back().items));
    open_.pop_back();
    return add(std::move(made));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    (void)position;
    fail("is no JSON: " + excerpt(error.what(), 200));
  }
  Value take() { return std::move(result_); }

 private:
  struct Open {
    bool object = false;
    std::vector<Value> items;
    std::vector<std::pair<Value, Value>> members;
    std::set<std::string> keys;
  };
  bool open(bool object) {
    if (open_.size() + 1 >= static_cast<std::size_t>(kMostValueDepth))
      fail("nests values deeper than " + std::to_string(kMostValueDepth));
    open_.emplace_back().object = object;
    return true;
  }
  bool add(Value value) {
    maker_.budget().spend(1);
    if (open_.empty())
      result_ = std::move(value);
    else if (open_.back().object)
      open_.back().members.back().second = std::move(value);
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }

  Maker& maker_;
  std::vector<Open> open_;
  Value result_;
};

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  budget.spend(1);
  if (const std::string* text = value.text()) {
    budget.spend(text->size() / 64);
    budget.keep(text->size());
    return *text;
  }
  if (value.is_undefined()) return {};
  return repr(value, budget);
}

std::string repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  printer.write(value);
  return printer.take();
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonPrinter printer(style, budget);
  printer.write(value, 0);
  return printer.take();
}

Value from_json(std::string_view json, Maker& maker) {
  Reader reader(maker);
  nlohmann::json::sax_parse(json, &reader);
  return reader.take();
}

}  // namespace fovea::text::jinja
