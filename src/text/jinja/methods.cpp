// Members of values: Python's methods, and what loops and namespaces have.
#include <algorithm>
#include <string_view>

#include "core/excerpt.h"
#include "text/jinja/machine.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace fovea::text::jinja {
namespace {

using Kind = Sequence::Kind;
using TextMethod = Value (*)(Machine&, const std::string&, const Arguments&);

Value texts(Machine& m, const std::vector<std::string_view>& parts) {
  m.budget().keep(sizeof(Value) * parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(m.maker().text(std::string(part)));
  return m.maker().list(std::move(items));
}

template <std::string (*change)(std::string_view)>
Value changed(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  m.budget().check_room(text.size(), 3);
  return m.maker().text(change(text));
}

template <Side side>
Value stripped(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const std::string* chars = bound.text(0);
  return m.maker().text(std::string(chars ? strip(text, *chars, side, m.budget()) : strip(text, side)));
}

template <bool right>
Value splits(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::string* separator = bound.text(0);
  const std::int64_t most = bound.integer(1, -1);
  Budget& budget = m.budget();
  if (right)
    return texts(m,
                 separator ? split_right(text, *separator, most, budget) : split_right(text, most, budget));
  return texts(m, separator ? split(text, *separator, most, budget) : split(text, most, budget));
}

template <bool right>
Value partition(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& separator = plain_text(*bound[0], "partition");
  if (separator.empty()) fail("empty separator");
  m.budget().check_room(text.size() + separator.size());
  const std::size_t at = right ? find_last(text, separator, m.budget()) : find_first(text, separator);
  std::vector<std::string> parts{text, "", ""};
  if (at != std::string::npos)
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  else if (right)
    std::swap(parts[0], parts[2]);
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(m.maker().text(std::move(part)));
  return m.maker().sequence(Kind::tuple, std::move(items));
}

Value split_lines_of(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return texts(m, split_lines(text, bound.flag(0), m.budget()));
}

// The part of a text between two places in characters.
struct Part {
  std::string_view text;
  std::int64_t first = 0;
  bool outside = false;  // behind the end, where not even an empty text is found
};
Part part_of(const std::string& text, const Bound& bound, std::size_t first) {
  const std::int64_t size = count_characters(text);
  const auto place = [&](std::size_t index, std::int64_t otherwise) {
    if (!bound[index] || bound[index]->is_none()) return otherwise;
    const std::int64_t at = bound.integer(index, 0);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t begin = place(first, 0), end = std::min(place(first + 1, size), size);
  if (begin > end) return {{}, begin, true};
  const std::size_t from = byte_of(text, begin);
  return {std::string_view(text).substr(from, byte_of(text, end) - from), begin};
}

enum class Place : std::uint8_t { first, last };
template <Place which, bool fails>
Value finds(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const Part part = part_of(text, bound, 1);
  const std::string& wanted = plain_text(*bound[0], "find");
  const std::size_t at = part.outside            ? std::string_view::npos
                         : which == Place::first ? find_first(part.text, wanted)
                                                 : find_last(part.text, wanted, m.budget());
  if (at != std::string_view::npos) return part.first + count_characters(part.text.substr(0, at));
  if (fails) fail("substring not found");
  return std::int64_t{-1};
}

Value count(Machine&, const std::string& text, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const Part part = part_of(text, bound, 1);
  const std::string& wanted = plain_text(*bound[0], "count");
  if (part.outside) return std::int64_t{0};
  if (wanted.empty()) return count_characters(part.text) + 1;
  std::int64_t found = 0;
  std::string_view rest = part.text;
  for (std::size_t at = 0; (at = find_first(rest, wanted)) != std::string_view::npos; ++found)
    rest.remove_prefix(at + wanted.size());
  return found;
}

template <bool at_end>
Value has_edge(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  const Part part = part_of(text, bound, 1);
  std::vector<Value> edges{*bound[0]};
  if (const Sequence* several = bound[0]->sequence(); several && several->kind == Kind::tuple)
    edges = items_of(*bound[0], m.maker());
  return std::ranges::any_of(edges, [&](const Value& value) {
    const std::string& edge = plain_text(value, at_end ? "endswith" : "startswith");
    m.budget().spend(1 + edge.size() / 64);
    return !part.outside && (at_end ? part.text.ends_with(edge) : part.text.starts_with(edge));
  });
}

template <bool at_end>
Value without_edge(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {"prefix"}, 1);
  const std::string& edge = plain_text(*bound[0], "removeprefix");
  std::string_view rest = text;
  if (at_end ? rest.ends_with(edge) : rest.starts_with(edge))
    rest = at_end ? rest.substr(0, rest.size() - edge.size()) : rest.substr(edge.size());
  return m.maker().text(std::string(rest));
}

Value replaced(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  m.budget().spend(text.size() / 8);
  return m.maker().text(replace(text, plain_text(*bound[0], "replace"), plain_text(*bound[1], "replace"),
                                bound.integer(2, -1), m.budget()));
}

Value joined(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string result;
  bool begun = false;
  for (const Value& item : items_of(*bound[0], m.maker())) {
    const std::string& part = plain_text(item, "join");
    m.budget().keep(text.size() + part.size());
    if (std::exchange(begun, true)) result += text;
    result += part;
  }
  return m.maker().text(std::move(result));
}

template <Class of>
Value is_class(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  m.budget().spend(text.size() / 8);
  return is_of(text, of);
}

enum class Align : std::uint8_t { left, right };
template <Align align>
Value justified(Machine& m, const std::string& text, const Arguments& arguments) {
  const Bound bound("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string* given = bound.text(1);
  const std::string fill = given ? *given : " ";
  if (count_characters(fill) != 1) fail("The fill character must be exactly one character long");
  const std::int64_t missing = std::max<std::int64_t>(bound.integer(0, 0) - count_characters(text), 0);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(missing), fill.size(), &bytes))
    fail("makes too much text or too many values");
  m.budget().keep(bytes);
  m.budget().check_room(text.size() + bytes);
  std::string filling;
  for (std::int64_t i = 0; i < missing; ++i) filling += fill;
  return m.maker().text(align == Align::left ? text + filling : filling + text);
}

// "{}, {1}, {name}" without formats of their own.
Value formatted(Machine& m, const std::string& text, const Arguments& arguments) {
  m.budget().spend(text.size() / 8);
  std::string result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{' && text[i] != '}') {
      result += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == text[i]) {
      result += text[i++];
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (text[i] == '}' || end == std::string::npos)
      fail("Single '" + std::string(1, text[i]) + "' encountered in format string");
    const std::string field = text.substr(i + 1, end - i - 1);
    i = end;
    const bool number =
        !field.empty() && field.size() < 6 && field.find_first_not_of("0123456789") == std::string::npos;
    m.budget().spend(1 + arguments.named.size() / 16);
    const auto named =
        std::ranges::find_if(arguments.named, [&](const auto& one) { return one.first == field; });
    if (field.find_first_of(".[!:{") != std::string::npos)
      fail("format() with '" + excerpt(field) + "' is not done here");
    const std::size_t index = field.empty() ? next++
                              : number      ? std::stoul(field)
                                            : arguments.positional.size();
    if (index < arguments.positional.size())
      result += to_text(arguments.positional[index], m.budget());
    else if (!number && !field.empty() && named != arguments.named.end())
      result += to_text(named->second, m.budget());
    else
      fail("format() has no value for '{" + excerpt(field) + "}'");
  }
  return m.maker().text(std::move(result));
}

constexpr std::pair<std::string_view, TextMethod> kTextMethods[] = {{"capitalize", changed<capitalize>},
                                                                    {"count", count},
                                                                    {"endswith", has_edge<true>},
                                                                    {"find", finds<Place::first, false>},
                                                                    {"format", formatted},
                                                                    {"index", finds<Place::first, true>},
                                                                    {"isalnum", is_class<Class::alnum>},
                                                                    {"isalpha", is_class<Class::alpha>},
                                                                    {"isascii", is_class<Class::ascii>},
                                                                    {"isdigit", is_class<Class::digit>},
                                                                    {"islower", is_class<Class::lower>},
                                                                    {"isspace", is_class<Class::space>},
                                                                    {"isupper", is_class<Class::upper>},
                                                                    {"join", joined},
                                                                    {"ljust", justified<Align::left>},
                                                                    {"lower", changed<lower_case>},
                                                                    {"lstrip", stripped<Side::left>},
                                                                    {"partition", partition<false>},
                                                                    {"removeprefix", without_edge<false>},
                                                                    {"removesuffix", without_edge<true>},
                                                                    {"replace", replaced},
                                                                    {"rfind", finds<Place::last, false>},
                                                                    {"rindex", finds<Place::last, true>},
                                                                    {"rjust", justified<Align::right>},
                                                                    {"rpartition", partition<true>},
                                                                    {"rsplit", splits<true>},
                                                                    {"rstrip", stripped<Side::right>},
                                                                    {"split", splits<false>},
                                                                    {"splitlines", split_lines_of},
                                                                    {"startswith", has_edge<false>},
                                                                    {"strip", stripped<Side::both>},
                                                                    {"title", changed<title>},
                                                                    {"upper", changed<upper>}};

// What Python's values have beside the methods above. A template that asks for one is told so: without this
// list it would read an undefined value.
constexpr std::string_view kOtherMembers[][2] = {
    {"str",
     " casefold center encode expandtabs format_map isdecimal isidentifier isnumeric isprintable istitle "
     "maketrans "
     "swapcase translate zfill "},
    {"list", " copy "},
    {"dict", " fromkeys "},
    {"int",
     " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes "},
    {"bool",
     " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes "},
    {"float", " as_integer_ratio conjugate fromhex hex imag is_integer real "},
    {"range", " count index start step stop "},
    {"dict_keys", " isdisjoint mapping "},
    {"dict_values", " mapping "},
    {"dict_items", " isdisjoint mapping "},
    {"generator", " close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw "},
    {"function", " arguments catch_kwargs catch_varargs caller explicit_caller name "},
};
// Those that change a value, which the sandbox hides.
constexpr std::string_view kChanging[][2] = {{"list", " append clear extend insert pop remove reverse sort "},
                                             {"dict", " clear pop popitem setdefault update "}};

bool listed(const std::string_view (&lists)[2], const std::string& type, const std::string& name) {
  return lists[0] == type && lists[1].find(" " + name + " ") != std::string_view::npos;
}

Value function(Machine& m, std::string name, int depth,
               std::function<Value(Machine&, const Arguments&)> call) {
  m.budget().keep(256);
  auto made = std::make_shared<Function>();
  if (depth + 1 > kMostValueDepth) fail("nests values deeper than " + std::to_string(kMostValueDepth));
  made->name = std::move(name);
  made->depth = depth + 1;
  made->call = std::move(call);
  return made;
}

// Of a text that is marked as safe too, so that asking for a method alone does no harm.
Method text_method(Machine& m, const Value& text, const std::string& name) {
  for (const auto& [known, method] : kTextMethods) {
    if (known != name) continue;
    return {true,
            function(m, name, 0, [text, method = method, name](Machine& machine, const Arguments& arguments) {
              const std::string& held = plain_text(text, name);
              machine.budget().spend(1 + held.size() / 8);
              return method(machine, held, arguments);
            })};
  }
  return {};
}

Method dict_method(Machine& m, const Value& dict, const std::string& name) {
  static constexpr std::string_view names[] = {"copy", "get", "items", "keys", "values"};
  if (std::ranges::find(names, name) == std::end(names)) return {};
  return {
      true,
      function(m, name, dict.depth(), [dict, name](Machine& machine, const Arguments& arguments) -> Value {
        const Dict& held = *dict.dict();
        if (name == "get") {
          const Bound bound("get", arguments, {"key", "default"}, 1);
          check_key(*bound[0]);
          if (const Value* found = find(held, *bound[0], machine.budget())) return *found;
          return bound[1] ? *bound[1] : Value(None{});
        }
        const Bound bound(name, arguments, {});
        if (name == "copy") return dict;
        machine.budget().spend(1 + held.items.size() / 8);
        machine.budget().check_room(held.items.size(), 2 * sizeof(Value));
        std::vector<Value> items;
        for (const auto& [key, value] : held.items)
          items.push_back(name == "keys" ? key : name == "values" ? value : machine.maker().pair(key, value));
        return machine.maker().sequence(name == "keys"     ? Kind::keys
                                        : name == "values" ? Kind::values
                                                           : Kind::items,
                                        std::move(items));
      })};
}

Method sequence_method(Machine& m, const Value& sequence, const std::string& name) {
  if (sequence.sequence()->kind > Kind::tuple || (name != "index" && name != "count")) return {};
  return {true, function(m, name, sequence.depth(),
                         [sequence, name](Machine& machine, const Arguments& arguments) -> Value {
                           const Bound bound(name, arguments, {"value"}, 1);
                           std::int64_t count = 0;
                           const std::vector<Value>& items = sequence.sequence()->items;
                           for (std::size_t i = 0; i < items.size(); ++i) {
                             if (!equal(items[i], *bound[0], machine.budget())) continue;
                             if (name == "index") return static_cast<std::int64_t>(i);
                             ++count;
                           }
                           if (name == "index") fail("the value is not in the list");
                           return count;
                         })};
}

Value cycle(const Value& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[loop.pointer<Loop>()->index % arguments.positional.size()];
}

Value loop_changed(Machine& m, const Value& value, const Arguments& arguments) {
  Loop& loop = *value.pointer<Loop>();
  int inner = 0;
  for (const Value& argument : arguments.positional) {
    // A loop in what a loop keeps could be this one, or the end of a chain of any length.
    if (argument.has_function()) fail("loop.changed() of a function or a loop is not done here");
    inner = std::max(inner, argument.depth());
  }
  if (inner >= kMostValueDepth) fail("nests values deeper than " + std::to_string(kMostValueDepth));
  bool same = loop.called_changed && loop.changed.size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < loop.changed.size(); ++i)
    same = equal(loop.changed[i], arguments.positional[i], m.budget());
  m.budget().keep(sizeof(Value) * arguments.positional.size());
  loop.depth = std::max(loop.depth, inner + 1);
  loop.called_changed = true;
  loop.changed = arguments.positional;
  return !same;
}

Method loop_member(Machine& m, const Value& value, const std::string& name) {
  const Loop& loop = *value.pointer<Loop>();
  const auto index = static_cast<std::int64_t>(loop.index), length = std::ssize(loop.items);
  const std::pair<std::string_view, Value> members[] = {{"index0", index},
                                                        {"index", index + 1},
                                                        {"length", length},
                                                        {"revindex0", length - index - 1},
                                                        {"revindex", length - index},
                                                        {"first", index == 0},
                                                        {"last", index + 1 == length},
                                                        {"depth", std::int64_t{1}},
                                                        {"depth0", std::int64_t{0}}};
  for (const auto& [known, member] : members) {
    if (known == name) return {true, member};
  }
  if (name == "previtem")
    return {true, index > 0 ? loop.items[loop.index - 1] : m.maker().undefined("there is no previous item")};
  if (name == "nextitem")
    return {true,
            index + 1 < length ? loop.items[loop.index + 1] : m.maker().undefined("there is no next item")};
  if (name == "cycle")
    return {true, function(m, name, value.depth(),
                           [value](Machine&, const Arguments& a) { return cycle(value, a); })};
  if (name == "changed")
    return {true, function(m, name, value.depth(), [value](Machine& machine, const Arguments& a) {
              return loop_changed(machine, value, a);
            })};
  return {};
}

}  // namespace

Method method_of(Machine& machine, const Value& value, const std::string& name) {
  if (auto* space = value.pointer<Namespace>()) {
    const auto found = space->members.find(name);
    if (found == space->members.end() || name.starts_with('_')) return {};
    return {true, found->second};
  }
  if (value.pointer<Loop>()) return loop_member(machine, value, name);
  Method method;
  if (value.text())
    method = text_method(machine, value, name);
  else if (value.dict())
    method = dict_method(machine, value, name);
  else if (value.sequence())
    method = sequence_method(machine, value, name);
  if (method.known) return method;
  const std::string type = type_name(value);
  for (const auto& lists : kChanging) {
    if (listed(lists, type, name))
      return {true, machine.maker().undefined("access to attribute '" + name + "' of '" + type +
                                              "' object is unsafe.")};
  }
  for (const auto& lists : kOtherMembers) {
    if (listed(lists, type, name)) fail("'" + name + "' of a " + type + " is not done here");
  }
  return {};
}

namespace {

Value range(Machine& m, const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = !bound[1];
  const std::int64_t first = one ? 0 : bound.integer(0, 0), last = bound.integer(one ? 0 : 1, 0),
                     step = bound.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  // As jinja2's sandbox.
  constexpr std::uint64_t most = 100'000;
  const bool empty = step > 0 ? first >= last : first <= last;
  const auto low = static_cast<std::uint64_t>(std::min(first, last)),
             high = static_cast<std::uint64_t>(std::max(first, last));
  const std::uint64_t stride =
      step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
  const std::uint64_t count = empty ? 0 : (high - low - 1) / stride + 1;
  if (count > most) fail("Range too big. The sandbox blocks ranges larger than 100000.");
  std::vector<Value> items;
  auto at = static_cast<std::uint64_t>(first);
  for (std::uint64_t i = 0; i < count; ++i, at += static_cast<std::uint64_t>(step))
    items.emplace_back(static_cast<std::int64_t>(at));
  return m.maker().sequence(Kind::range, std::move(items));
}

// The members of one dict, if it is given, and the named arguments.
std::vector<std::pair<Value, Value>> members_of(Machine& m, const char* name, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> members;
  if (arguments.positional.size() > 1) fail(std::string(name) + "() takes at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& given = arguments.positional[0];
    if (given.dict()) {
      m.budget().spend(1 + given.dict()->items.size() / 8);
      m.budget().check_room(given.dict()->items.size(), 2 * sizeof(Value));
      members = given.dict()->items;
    } else {
      for (const Value& item : items_of(given, m.maker())) {
        const std::vector<Value> pair = items_of(item, m.maker());
        if (pair.size() != 2) fail(std::string(name) + "(): expected pairs");
        members.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) members.emplace_back(m.maker().text(key), value);
  return members;
}

Value new_namespace(Machine& m, const Arguments& arguments) {
  std::vector<std::pair<std::string, Value>> members;
  for (auto& [key, value] : members_of(m, "namespace", arguments))
    members.emplace_back(plain_text(key, "namespace"), std::move(value));
  return m.new_namespace(std::move(members));
}

Value raise_exception(Machine& m, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  fail("the template refuses: " + excerpt(to_text(*bound[0], m.budget()), 500));
}

Value strftime_now(Machine& m, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string format = plain_text(*bound[0], "strftime_now");
  if (format.find("%f") != std::string::npos) fail("strftime_now() of %f is not done here");
  if (format.size() > 1000) fail("strftime_now() of a format of more than 1000 bytes");
  m.budget().spend(200);  // a buffer of 64 KiB
  const std::time_t now = m.now().value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  // The blank makes an empty result one that succeeded. Widths such as %999d are bounded by the buffer.
  std::string text(1 << 16, '\0');
  text.resize(std::strftime(text.data(), text.size(), (format + " ").c_str(), &local));
  if (text.empty()) fail("strftime_now() of '" + excerpt(format) + "' is too long");
  text.pop_back();
  return m.maker().text(std::move(text));
}

}  // namespace

Value global(Machine& machine, const std::string& name) {
  using Call = Value (*)(Machine&, const Arguments&);
  static constexpr std::pair<std::string_view, Call> functions[] = {
      {"dict", [](Machine& m, const Arguments& a) { return m.maker().dict(members_of(m, "dict", a)); }},
      {"namespace", new_namespace},
      {"raise_exception", raise_exception},
      {"range", range},
      {"strftime_now", strftime_now}};
  for (const auto& [known, call] : functions) {
    if (known == name) return function(machine, name, 0, call);
  }
  if (name == "cycler" || name == "joiner" || name == "lipsum") fail("'" + name + "' is not done here");
  return machine.maker().undefined("'" + excerpt(name) + "' is undefined");
}

}  // namespace fovea::text::jinja
