// What a template computes with: Python's values, as far as templates use them. All but namespaces are never
// changed once made, as in the sandbox of jinja2 that transformers uses, so values are shared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fovea::text::jinja {

/// Why a template cannot be rendered. The interpreter adds file and line.
struct Failure {
  std::string reason;
};
[[noreturn]] void fail(std::string reason);

class Value;
class Machine;

/// The value of a missing name or member. It prints as an empty text. Any other use fails with `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  ///< UTF-8
  bool safe = false;                         ///< markupsafe's Markup, which `+` escapes other texts for
};

struct Sequence {
  /// `generator`: what filters such as map give. It can be read once, and has no length.
  enum class Kind : std::uint8_t { list, tuple, range, keys, values, items, generator };
  Kind kind = Kind::list;
  std::vector<Value> items;
  std::size_t read = 0;  ///< of a generator: the items that were read
  /// The error that reading this generator raises. Fovea computes the items at once; Python computes them
  /// when they are read.
  std::shared_ptr<const std::string> failure;
  int depth = 1;              ///< of nested values
  bool has_function = false;  ///< whether a nested value is a function or `loop`
};

/// In the order in which keys came.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::map<std::string, std::size_t, std::less<>> texts;  ///< the places of keys that are texts
  int depth = 1;
  bool has_function = false;
};

/// The one value that a template changes. The interpreter owns all of them until the end, because they may
/// contain each other.
struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
struct Function {
  std::string name;
  std::function<Value(Machine&, const Arguments&)> call;
  int depth = 1;
};

/// The variable `loop`.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  std::vector<Value> changed;  ///< of the last call of loop.changed
  bool called_changed = false;
  int depth = 1;
};

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<Sequence>,
                               std::shared_ptr<Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Function>,
                               std::shared_ptr<Loop>>;
  Value() : variant_(Undefined{}) {}
  template <typename T>
  requires std::constructible_from<Variant, T> Value(T value)
      : variant_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a value of any kind

  const Variant& variant() const noexcept { return variant_; }
  /// nullptr for another kind.
  template <typename T>
  const T* as() const noexcept {
    return std::get_if<T>(&variant_);
  }
  const Sequence* sequence() const noexcept { return pointer<Sequence>(); }
  const Dict* dict() const noexcept { return pointer<Dict>(); }
  const std::string* text() const noexcept {
    const Text* found = as<Text>();
    return found ? found->bytes.get() : nullptr;
  }
  bool is_undefined() const noexcept { return as<Undefined>() != nullptr; }
  bool is_none() const noexcept { return as<None>() != nullptr; }
  /// Of a whole number, or of a truth value, which Python counts as 0 or 1.
  const std::int64_t* integer() const noexcept;
  bool is_number() const noexcept { return integer() || as<double>(); }
  double number() const;  ///< of a value that is one
  bool is_safe() const noexcept { return as<Text>() && as<Text>()->safe; }
  int depth() const noexcept;
  /// Whether it is a function or `loop`, or a list or dict that holds one at any depth.
  bool has_function() const noexcept;

  template <typename T>
  T* pointer() const noexcept {
    const auto* found = std::get_if<std::shared_ptr<T>>(&variant_);
    return found ? found->get() : nullptr;
  }

 private:
  Variant variant_;
};

/// What the rendering of one template may cost, in steps of at most about 100 ns and in bytes. Every
/// operation pays for its work before it begins: one step for 8 to 64 bytes that it reads, by what it does
/// with them. So time and memory end whatever the template says.
class Budget {
 public:
  Budget(std::int64_t steps, std::int64_t bytes) : steps_(steps), bytes_(bytes) {}
  /// Throw Failure.
  void spend(std::size_t steps);
  void keep(std::size_t bytes);
  /// Throws Failure if there is no room for so many bytes, and takes none of them: for what an operation
  /// needs until it ends.
  void check_room(std::size_t count, std::size_t bytes_each = 1) const;

 private:
  std::int64_t steps_, bytes_;
};

/// Makes values at the cost of a budget.
class Maker {
 public:
  explicit Maker(Budget& budget) : budget_(budget) {}
  Budget& budget() noexcept { return budget_; }

  Value text(std::string text, bool safe = false);
  Value sequence(Sequence::Kind kind, std::vector<Value> items);
  Value list(std::vector<Value> items) { return sequence(Sequence::Kind::list, std::move(items)); }
  Value pair(Value first, Value second);
  Value dict(std::vector<std::pair<Value, Value>> items);
  Value undefined(std::string reason);

 private:
  Budget& budget_;
};

/// The deepest nesting of values.
constexpr int kMostValueDepth = 100;

/// Python's bool(). Throws nothing: an undefined value is false.
bool truth(const Value& value);
/// Python's ==.
bool equal(const Value& a, const Value& b, Budget& budget);
/// Python's <. Throws Failure for values without an order.
bool less(const Value& a, const Value& b, Budget& budget);
/// Python's str() and repr().
std::string to_text(const Value& value, Budget& budget);
std::string repr(const Value& value, Budget& budget);
std::string repr(double number);
/// json.dumps(value, ...).
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  const std::string* indent = nullptr;  ///< nullptr: one line
  std::string between = ", ", behind_key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);
/// A value of a JSON text. Throws Failure for what is no JSON, for a key that stands twice, and for whole
/// numbers beyond 64 bits.
Value from_json(std::string_view json, Maker& maker);

/// "str", "int", "dict": for errors.
std::string type_name(const Value& value);
/// Throws Failure for a value that is no key of a dict, such as a list.
void check_key(const Value& value);
/// The member of a dict; nullptr if it is not there.
const Value* find(const Dict& dict, const Value& key, Budget& budget);
/// What a loop reads. Of a generator that is what is left of it, and then nothing is left. Throws Failure.
std::vector<Value> items_of(const Value& value, Maker& maker);
/// Python's len(); throws Failure.
std::int64_t length_of(const Value& value);

}  // namespace fovea::text::jinja
