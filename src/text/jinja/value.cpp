#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/excerpt.h"
#include "text/jinja/strings.h"

namespace fovea::text::jinja {

void fail(std::string reason) {
  throw Failure{std::move(reason)};
}

const std::int64_t* Value::integer() const noexcept {
  static constexpr std::int64_t truths[] = {0, 1};
  if (const bool* truth = as<bool>()) return &truths[*truth ? 1 : 0];
  return as<std::int64_t>();
}

double Value::number() const {
  if (const std::int64_t* whole = integer()) return static_cast<double>(*whole);
  return *as<double>();
}

int Value::depth() const noexcept {
  if (const Sequence* found = sequence()) return found->depth;
  if (const Dict* found = dict()) return found->depth;
  if (const Function* found = pointer<Function>()) return found->depth;
  if (const Loop* found = pointer<Loop>()) return found->depth;
  return 0;
}

bool Value::has_function() const noexcept {
  if (const Sequence* found = sequence()) return found->has_function;
  if (const Dict* found = dict()) return found->has_function;
  return pointer<Function>() || pointer<Loop>();
}

void Budget::spend(std::size_t steps) {
  steps_ -= static_cast<std::int64_t>(std::min<std::size_t>(steps, std::size_t{1} << 40));
  if (steps_ < 0) fail("takes too many steps");
}

void Budget::keep(std::size_t bytes) {
  bytes_ -= static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::size_t{1} << 40));
  if (bytes_ < 0) fail("makes too much text or too many values");
}

void Budget::check_room(std::size_t count, std::size_t bytes_each) const {
  std::size_t bytes = 0;
  if (bytes_ < 0 || __builtin_mul_overflow(count, bytes_each, &bytes) ||
      bytes > static_cast<std::size_t>(bytes_))
    fail("makes too much text or too many values");
}

Value Maker::text(std::string text, bool safe) {
  budget_.spend(1 + text.size() / 64);
  budget_.keep(text.size() + 64);
  return Text{std::make_shared<const std::string>(std::move(text)), safe};
}

namespace {

int checked_depth(int inner) {
  if (inner >= kMostValueDepth) fail("nests values deeper than " + std::to_string(kMostValueDepth));
  return inner + 1;
}

}  // namespace

Value Maker::sequence(Sequence::Kind kind, std::vector<Value> items) {
  budget_.spend(1 + items.size() / 8);
  budget_.keep(96 + sizeof(Value) * items.size());
  auto made = std::make_shared<Sequence>();
  int inner = 0;
  for (const Value& item : items) {
    inner = std::max(inner, item.depth());
    made->has_function = made->has_function || item.has_function();
  }
  made->kind = kind;
  made->items = std::move(items);
  made->depth = checked_depth(inner);
  return made;
}

Value Maker::pair(Value first, Value second) {
  std::vector<Value> items;
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return sequence(Sequence::Kind::tuple, std::move(items));
}

Value Maker::dict(std::vector<std::pair<Value, Value>> items) {
  auto made = std::make_shared<Dict>();
  int inner = 0;
  for (auto& [key, value] : items) {
    budget_.spend(1);
    check_key(key);
    inner = std::max({inner, key.depth(), value.depth()});
    made->has_function = made->has_function || key.has_function() || value.has_function();
    if (const Value* known = find(*made, key, budget_)) {
      const_cast<Value&>(*known) = std::move(value);  // of `made`, which nobody else has yet
      continue;
    }
    if (const std::string* text = key.text()) {
      budget_.keep(text->size() + 96);
      made->texts.emplace(*text, made->items.size());
    }
    budget_.keep(2 * sizeof(Value));
    made->items.emplace_back(std::move(key), std::move(value));
  }
  budget_.keep(128);
  made->depth = checked_depth(inner);
  return made;
}

Value Maker::undefined(std::string reason) {
  budget_.keep(reason.size() + 64);
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const std::int64_t* whole = value.integer()) return *whole != 0;
  if (const double* number = value.as<double>()) return *number != 0.0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const Sequence* sequence = value.sequence())
    return sequence->kind == Sequence::Kind::generator || !sequence->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

void check_key(const Value& value) {
  using Kind = Sequence::Kind;
  const Sequence* sequence = value.sequence();
  if (sequence && sequence->kind == Kind::tuple) {
    for (const Value& item : sequence->items) check_key(item);
  } else if (value.dict() || (sequence && (sequence->kind == Kind::list || sequence->kind == Kind::keys ||
                                           sequence->kind == Kind::items))) {
    fail("unhashable type: '" + type_name(value) + "'");
  }
}

const Value* find(const Dict& dict, const Value& key, Budget& budget) {
  if (const std::string* text = key.text()) {
    budget.spend(1 + text->size() / 16);  // compared with some twenty keys of a large dict
    const auto found = dict.texts.find(*text);
    return found == dict.texts.end() ? nullptr : &dict.items[found->second].second;
  }
  if (dict.texts.size() == dict.items.size()) return nullptr;
  for (const auto& [known, value] : dict.items) {
    if (equal(known, key, budget)) return &value;
  }
  return nullptr;
}

namespace {

// What Python compares as a set.
bool is_set(const Sequence& sequence) {
  return sequence.kind == Sequence::Kind::keys || sequence.kind == Sequence::Kind::items;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    return a.number() == b.number();
  }
  if (const std::string* text = a.text()) {
    if (!b.text() || text->size() != b.text()->size()) return false;
    budget.spend(text->size() / 64);
    return *text == *b.text();
  }
  if (const Sequence* first = a.sequence()) {
    const Sequence* second = b.sequence();
    if (second && is_set(*first) && is_set(*second))
      fail("the comparison of keys() and items() is not done here");
    if (!second || first->kind != second->kind) return false;
    if (first == second) return true;
    if (first->kind > Sequence::Kind::range) return false;  // views and generators are themselves alone
    return std::ranges::equal(first->items, second->items,
                              [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (const Dict* first = a.dict()) {
    const Dict* second = b.dict();
    if (!second || first->items.size() != second->items.size()) return false;
    return first == second || std::ranges::all_of(first->items, [&](const auto& item) {
             const Value* other = find(*second, item.first, budget);
             return other && equal(item.second, *other, budget);
           });
  }
  if (a.is_undefined() || a.is_none()) return a.variant().index() == b.variant().index();
  if (const Namespace* space = a.pointer<Namespace>()) return space == b.pointer<Namespace>();
  if (const Function* function = a.pointer<Function>()) return function == b.pointer<Function>();
  if (const Loop* loop = a.pointer<Loop>()) return loop == b.pointer<Loop>();
  return false;
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_undefined()) fail(*a.as<Undefined>()->reason);
  if (b.is_undefined()) fail(*b.as<Undefined>()->reason);
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.text() && b.text()) {
    budget.spend(std::min(a.text()->size(), b.text()->size()) / 64);
    return *a.text() < *b.text();  // UTF-8 has the order of the code points
  }
  const Sequence *first = a.sequence(), *second = b.sequence();
  if (first && second && first->kind == second->kind && first->kind <= Sequence::Kind::tuple) {
    for (std::size_t i = 0; i < first->items.size() && i < second->items.size(); ++i) {
      if (!equal(first->items[i], second->items[i], budget))
        return less(first->items[i], second->items[i], budget);
    }
    return first->items.size() < second->items.size();
  }
  if (first && second && is_set(*first) && is_set(*second))
    fail("the comparison of keys() and items() is not done here");
  fail("'" + type_name(a) + "' and '" + type_name(b) + "' have no order");
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.as<bool>()) return "bool";
  if (value.as<std::int64_t>()) return "int";
  if (value.as<double>()) return "float";
  if (value.text()) return "str";
  if (const Sequence* sequence = value.sequence()) {
    static constexpr const char* names[] = {"list",        "tuple",      "range",    "dict_keys",
                                            "dict_values", "dict_items", "generator"};
    return names[static_cast<std::size_t>(sequence->kind)];
  }
  if (value.dict()) return "dict";
  if (value.pointer<Namespace>()) return "Namespace";
  if (value.pointer<Loop>()) return "LoopContext";
  return "function";
}

std::vector<Value> items_of(const Value& value, Maker& maker) {
  if (value.is_undefined()) return {};
  if (const std::string* text = value.text()) {
    maker.budget().spend(1 + text->size() / 16);
    const auto count = static_cast<std::size_t>(count_characters(*text));
    maker.budget().keep(sizeof(Value) * count);
    std::vector<Value> items;
    items.reserve(count);
    for (std::string_view rest = *text; !rest.empty();) {
      const std::size_t bytes = byte_of(rest, 1);
      items.push_back(maker.text(std::string(rest.substr(0, bytes))));
      rest.remove_prefix(bytes);
    }
    return items;
  }
  if (const Sequence* sequence = value.sequence()) {
    maker.budget().keep(sizeof(Value) * sequence->items.size());
    maker.budget().spend(1 + sequence->items.size() / 8);
    if (sequence->kind != Sequence::Kind::generator) return sequence->items;
    if (sequence->failure) fail(*sequence->failure);
    auto* generator = value.pointer<Sequence>();
    std::vector<Value> rest(generator->items.begin() + static_cast<std::ptrdiff_t>(generator->read),
                            generator->items.end());
    generator->read = generator->items.size();
    return rest;
  }
  if (const Dict* dict = value.dict()) {
    maker.budget().keep(sizeof(Value) * dict->items.size());
    maker.budget().spend(1 + dict->items.size() / 8);
    std::vector<Value> keys;
    for (const auto& [key, ignored] : dict->items) keys.push_back(key);
    return keys;
  }
  if (value.pointer<Loop>()) fail("a loop within its own loop is not done here");
  fail("'" + type_name(value) + "' object is not iterable");
}

std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return count_characters(*text);
  if (const Sequence* sequence = value.sequence(); sequence && sequence->kind != Sequence::Kind::generator)
    return std::ssize(sequence->items);
  if (const Dict* dict = value.dict()) return std::ssize(dict->items);
  if (const Loop* loop = value.pointer<Loop>()) return std::ssize(loop->items);
  fail("object of type '" + type_name(value) + "' has no len()");
}

}  // namespace fovea::text::jinja
