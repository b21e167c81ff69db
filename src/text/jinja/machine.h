// Runs a template.
#pragma once

#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"

namespace fovea::text::jinja {

/// The arguments of a function by the names of its parameters.
class Bound {
 public:
  /// Throws Failure for arguments that it does not have, and without the first `required`.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required = 0);

  const Value* operator[](std::size_t index) const { return values_[index]; }
  bool flag(std::size_t index, bool otherwise = false) const;
  /// Throw Failure for a value of another kind.
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  const std::string* text(std::size_t index) const;  ///< nullptr without it, or for None

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

/// Throws Failure for a value that is no text, or one that is marked as safe: what Python's methods make of
/// such a text is not done here.
const std::string& plain_text(const Value& value, std::string_view function);

class Machine {
 public:
  Machine(Budget& budget, std::optional<std::time_t> now) : maker_(budget), now_(now) {}
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Throws Failure; line() says where.
  std::string run(const Body& body, std::vector<std::pair<std::string, Value>> variables);
  int line() const noexcept { return line_; }

  Maker& maker() noexcept { return maker_; }
  Budget& budget() noexcept { return maker_.budget(); }
  std::optional<std::time_t> now() const noexcept { return now_; }
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& index);
  Value call(const Value& function, const Arguments& arguments);
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value binary(Operator op, const Value& left, const Value& right);
  bool compare(Operator op, const Value& left, const Value& right);
  Value new_namespace(std::vector<std::pair<std::string, Value>> members);

 private:
  struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<std::string, Value>> values;
    bool kept = false;  // a macro reads it later
  };
  class Inner;
  class Output;
  class Depth;
  enum class Flow : std::uint8_t { next, leave, again };

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_loop(const Statement& statement, std::vector<Value> items);
  std::vector<Value> filtered(const Statement& statement, std::vector<Value> items);
  Flow run_set_block(const Statement& statement);
  Flow run_filter_block(const Statement& statement);
  Flow run_with(const Statement& statement);
  void begin(const Body& body);
  Value macro(const Statement& statement, std::string name);
  Value call_macro(const Statement& statement, const std::string& name, Scope* scope,
                   const Arguments& arguments);
  std::string text_of_block(const Body& body, Flow& flow);
  void print(const Value& value);
  void write(std::string_view text);
  void assign(const Target& target, const Value& value);
  void assign_all(const Target& target, const Value& value);
  void set(const std::string& name, Value value);
  void keep_scopes();

  Value evaluate(const Expression& expression);
  Value name(const Expression& expression);
  Value collection(const Expression& expression);
  Value item_of(const Expression& expression);
  Value slice(const Value& of, const Expression& bounds);
  Value unary(const Expression& expression);
  Value compare(const Expression& expression);
  Value concatenate(const Expression& expression);
  Value call_of(const Expression& expression);
  Arguments arguments_of(const Expression& expression, std::size_t first);
  const Value* find(const std::string& name);

  Maker maker_;
  std::optional<std::time_t> now_;
  Scope* scope_ = nullptr;
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::string* output_ = nullptr;
  int depth_ = 0, line_ = 1;
};

/// The functions that every template has, such as range; an undefined value for another name.
Value global(Machine& machine, const std::string& name);
/// A value through the filter `name`. Machine::filter calls it, and pays for reading the value.
Value filtered_by(Machine& machine, const std::string& name, const Value& value, const Arguments& arguments);
/// A method of a value, such as str.strip. `known` says whether Python has it.
struct Method {
  bool known = false;
  Value value;
};
Method method_of(Machine& machine, const Value& value, const std::string& name);

}  // namespace fovea::text::jinja
