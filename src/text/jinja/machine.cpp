#include "text/jinja/machine.h"

#include <algorithm>
#include <utility>

#include "core/excerpt.h"
#include "text/jinja/strings.h"

namespace fovea::text::jinja {
namespace {

using Kind = Expression::Kind;

// Of statements and expressions within each other, macros included. A level takes at most a few kilobytes of
// the stack.
constexpr int kMostCalls = 600;

std::string of_object(const Value& value) {
  return value.is_none() ? "None" : "'" + type_name(value) + " object'";
}

}  // namespace

// -- arguments

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size())
    fail(std::string(function) + "() takes at most " + std::to_string(names.size()) + " arguments");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail(std::string(function) + "() has no argument '" + excerpt(name) + "' here");
    const Value*& place = values_[static_cast<std::size_t>(found - names.begin())];
    if (place) fail(std::string(function) + "() got two values of '" + excerpt(name) + "'");
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i])
      fail(std::string(function) + "() misses the argument '" + std::string(names.begin()[i]) + "'");
  }
}

bool Bound::flag(std::size_t index, bool otherwise) const {
  return values_[index] ? truth(*values_[index]) : otherwise;
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  if (!values_[index]) return otherwise;
  const std::int64_t* found = values_[index]->integer();
  if (!found)
    fail(std::string(function_) + "(): expected a whole number, got a " + type_name(*values_[index]));
  return *found;
}

const std::string* Bound::text(std::size_t index) const {
  if (!values_[index] || values_[index]->is_none()) return nullptr;
  return &plain_text(*values_[index], function_);
}

const std::string& plain_text(const Value& value, std::string_view function) {
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (!value.text()) fail(std::string(function) + "(): expected a text, got a " + type_name(value));
  if (value.is_safe()) fail(std::string(function) + "() of a text that is marked as safe is not done here");
  return *value.text();
}

// -- scopes, output, depth

// A scope within the current one. Those that macros read stay until the end.
class Machine::Inner {
 public:
  Inner(Machine& machine, Scope* parent)
      : machine_(machine), before_(machine.scope_), scope_(std::make_unique<Scope>()) {
    machine_.budget().spend(1);
    scope_->parent = parent;
    machine_.scope_ = scope_.get();
  }
  explicit Inner(Machine& machine) : Inner(machine, machine.scope_) {}
  ~Inner() {
    machine_.scope_ = before_;
    if (scope_->kept) machine_.kept_.push_back(std::move(scope_));
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Machine& machine_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

// What is printed goes to a text of its own.
class Machine::Output {
 public:
  explicit Output(Machine& machine) : machine_(machine), before_(machine.output_) {
    machine_.output_ = &text_;
  }
  ~Output() { machine_.output_ = before_; }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  std::string take() { return std::move(text_); }

 private:
  Machine& machine_;
  std::string* before_;
  std::string text_;
};

class Machine::Depth {
 public:
  explicit Depth(Machine& machine) : machine_(machine) {
    machine_.budget().spend(1);
    if (++machine_.depth_ > kMostCalls) {
      --machine_.depth_;
      fail("calls nest deeper than " + std::to_string(kMostCalls));
    }
  }
  ~Depth() { --machine_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Machine& machine_;
};

// Namespaces and scopes may contain each other: they are emptied while all of them are still there.
Machine::~Machine() {
  for (const auto& space : namespaces_) space->members.clear();
  for (const auto& scope : kept_) scope->values.clear();
}

namespace {

// As transformers has it.
void check_member(const std::string& name) {
  if (name.starts_with('_'))
    fail("a namespace has no member that begins with an underscore: '" + excerpt(name) + "'");
}

}  // namespace

Value Machine::new_namespace(std::vector<std::pair<std::string, Value>> members) {
  budget().keep(256 + 128 * members.size());
  for (const auto& [name, value] : members) {
    check_member(name);
    budget().keep(name.size());
  }
  auto made = std::make_shared<Namespace>();
  for (auto& [name, value] : members) made->members.insert_or_assign(std::move(name), std::move(value));
  namespaces_.push_back(made);
  return made;
}

namespace {

// The place of a name. `work` grows by 16 for each step that the comparisons cost.
template <typename Values>
auto place_of(Values& values, const std::string& name, std::size_t& work) {
  return std::ranges::find_if(values, [&](const auto& one) {
    const bool compared = one.first.size() == name.size();
    work += compared ? 2 + name.size() / 4 : 1;
    return compared && one.first == name;
  });
}

}  // namespace

const Value* Machine::find(const std::string& name) {
  std::size_t work = 0;
  const Value* value = nullptr;
  for (const Scope* scope = scope_; scope && !value; scope = scope->parent) {
    if (const auto found = place_of(scope->values, name, work); found != scope->values.end())
      value = &found->second;
  }
  budget().spend(work / 16);
  return value;
}

void Machine::set(const std::string& name, Value value) {
  std::size_t work = 0;
  const auto found = place_of(scope_->values, name, work);
  budget().spend(work / 16);
  if (found != scope_->values.end()) {
    found->second = std::move(value);
    return;
  }
  budget().keep(name.size() + sizeof(Value) + 32);
  scope_->values.emplace_back(name, std::move(value));
}

void Machine::keep_scopes() {
  for (Scope* scope = scope_; scope && !scope->kept; scope = scope->parent) {
    budget().keep(64);
    scope->kept = true;
  }
}

void Machine::write(std::string_view text) {
  budget().spend(1 + text.size() / 64);
  budget().keep(text.size());
  *output_ += text;
}

void Machine::print(const Value& value) {
  if (const std::string* text = value.text()) return write(*text);
  write(to_text(value, budget()));
}

// -- statements

std::string Machine::run(const Body& body, std::vector<std::pair<std::string, Value>> variables) {
  Output output(*this);
  const Inner outer(*this, nullptr);
  scope_->values = std::move(variables);
  const Inner inner(*this);
  begin(body);
  run(body);
  return output.take();
}

void Machine::begin(const Body& body) {
  for (const std::string& name : body.undefined)
    set(name, maker_.undefined("'" + excerpt(name) + "' is undefined"));
}

Machine::Flow Machine::run(const Body& body) {
  for (const Statement& statement : body.statements) {
    if (const Flow flow = run(statement); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Machine::Flow Machine::run(const Statement& statement) {
  const Depth depth(*this);
  line_ = statement.line;
  Flow flow = Flow::next;
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.name);
      break;
    case Statement::Kind::output:
      for (const ExpressionPtr& expression : statement.expressions) print(evaluate(*expression));
      break;
    case Statement::Kind::if_:
      return run_if(statement);
    case Statement::Kind::for_:
      return run_for(statement);
    case Statement::Kind::set:
      assign(statement.targets[0], evaluate(*statement.expressions[0]));
      break;
    case Statement::Kind::set_block:
      return run_set_block(statement);
    case Statement::Kind::macro:
      set(statement.name, macro(statement, statement.name));
      break;
    case Statement::Kind::call: {
      const Expression& call = *statement.expressions[0];
      const Value function = evaluate(*call.operands[0]);
      Arguments arguments = arguments_of(call, 1);
      arguments.named.emplace_back("caller", macro(statement, "caller"));
      print(this->call(function, arguments));
      break;
    }
    case Statement::Kind::with:
      return run_with(statement);
    case Statement::Kind::filter:
      return run_filter_block(statement);
    case Statement::Kind::scope:
      write(text_of_block(statement.bodies[0], flow));
      break;
    case Statement::Kind::break_:
      return Flow::leave;
    case Statement::Kind::continue_:
      return Flow::again;
  }
  return flow;
}

Machine::Flow Machine::run_if(const Statement& statement) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truth(evaluate(*statement.expressions[i]))) return run(statement.bodies[i]);
  }
  return statement.bodies.size() > statement.expressions.size() ? run(statement.bodies.back()) : Flow::next;
}

Machine::Flow Machine::run_for(const Statement& statement) {
  std::vector<Value> items = items_of(evaluate(*statement.expressions[0]), maker_);
  if (statement.expressions[1]) items = filtered(statement, std::move(items));
  if (!items.empty()) return run_loop(statement, std::move(items));
  if (statement.bodies.size() < 2) return Flow::next;
  const Inner inner(*this);
  begin(statement.bodies[1]);
  return run(statement.bodies[1]);
}

std::vector<Value> Machine::filtered(const Statement& statement, std::vector<Value> items) {
  std::vector<Value> kept;
  for (Value& item : items) {
    const Inner inner(*this);
    assign(statement.targets[0], item);
    if (truth(evaluate(*statement.expressions[1]))) kept.push_back(std::move(item));
  }
  return kept;
}

Machine::Flow Machine::run_loop(const Statement& statement, std::vector<Value> items) {
  auto loop = std::make_shared<Loop>();
  budget().keep(128);
  int inner_depth = 0;
  for (const Value& item : items) inner_depth = std::max(inner_depth, item.depth());
  if (inner_depth >= kMostValueDepth) fail("nests values deeper than " + std::to_string(kMostValueDepth));
  loop->depth = inner_depth + 1;
  loop->items = std::move(items);
  for (; loop->index < loop->items.size(); ++loop->index) {
    const Inner inner(*this);
    set("loop", loop);
    assign(statement.targets[0], loop->items[loop->index]);
    begin(statement.bodies[0]);
    if (run(statement.bodies[0]) == Flow::leave) return Flow::next;
  }
  --loop->index;  // A namespace may still hold `loop`: its index stays that of the last item.
  return Flow::next;
}

std::string Machine::text_of_block(const Body& body, Flow& flow) {
  Output output(*this);
  const Inner inner(*this);
  begin(body);
  flow = run(body);
  return output.take();
}

// A block that a jump leaves has no text: jinja2 drops what the block has printed so far.
Machine::Flow Machine::run_set_block(const Statement& statement) {
  Flow flow = Flow::next;
  Value value = maker_.text(text_of_block(statement.bodies[0], flow));
  if (flow != Flow::next) return flow;
  if (statement.expressions[0]) {
    const Inner inner(*this);
    set(" block", std::move(value));
    value = evaluate(*statement.expressions[0]);
  }
  assign(statement.targets[0], value);
  return flow;
}

Machine::Flow Machine::run_filter_block(const Statement& statement) {
  Flow flow = Flow::next;
  Value text = maker_.text(text_of_block(statement.bodies[0], flow));
  if (flow != Flow::next) return flow;
  // The innermost filter of the chain has no operand of its own.
  const Inner inner(*this);
  set(" block", std::move(text));
  print(evaluate(*statement.expressions[0]));
  return flow;
}

Machine::Flow Machine::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPtr& expression : statement.expressions) values.push_back(evaluate(*expression));
  const Inner inner(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  begin(statement.bodies[0]);
  return run(statement.bodies[0]);
}

void Machine::assign(const Target& target, const Value& value) {
  line_ = target.line;
  if (!target.parts.empty()) return assign_all(target, value);
  if (target.member.empty()) return set(target.name, value);
  const Value* found = find(target.name);
  auto* space = found ? found->pointer<Namespace>() : nullptr;
  if (!space) fail("cannot assign to a member of '" + target.name + "', which is no namespace");
  check_member(target.member);
  budget().keep(target.member.size() + 64);
  space->members.insert_or_assign(target.member, value);
}

void Machine::assign_all(const Target& target, const Value& value) {
  const std::vector<Value> items = items_of(value, maker_);
  if (items.size() != target.parts.size())
    fail("expected " + std::to_string(target.parts.size()) + " values to unpack, got " +
         std::to_string(items.size()));
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

Value Machine::macro(const Statement& statement, std::string name) {
  keep_scopes();
  budget().keep(256);
  auto made = std::make_shared<Function>();
  made->name = name;
  made->call = [&statement, name = std::move(name), scope = scope_](Machine& machine,
                                                                    const Arguments& arguments) {
    return machine.call_macro(statement, name, scope, arguments);
  };
  return made;
}

Value Machine::call_macro(const Statement& statement, const std::string& name, Scope* scope,
                          const Arguments& arguments) {
  const Signature& signature = *statement.signature;
  const std::size_t count = signature.names.size();
  Output output(*this);
  const Inner inner(*this, scope);
  std::vector<bool> given(count);
  std::vector<Value> more;
  std::vector<std::pair<Value, Value>> named;
  Value caller = maker_.undefined("No caller defined");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i >= count) {
      more.push_back(arguments.positional[i]);
      continue;
    }
    given[i] = true;
    set(signature.names[i], arguments.positional[i]);
  }
  for (const auto& [key, value] : arguments.named) {
    budget().spend(1 + count / 16);
    const auto found = std::ranges::find(signature.names, key);
    const auto index = static_cast<std::size_t>(found - signature.names.begin());
    if (found != signature.names.end()) {
      if (given[index]) fail("macro '" + name + "' got two values of '" + excerpt(key) + "'");
      given[index] = true;
      set(key, value);
    } else if (key == "caller" && signature.takes_caller) {
      caller = value;
    } else {
      named.emplace_back(maker_.text(key), value);
    }
  }
  if (!more.empty() && !signature.takes_more)
    fail("macro '" + name + "' takes not more than " + std::to_string(count) + " argument(s)");
  if (!named.empty() && !signature.takes_named)
    fail("macro '" + name + "' takes no keyword argument '" + excerpt(*named.front().first.text()) + "'");
  const std::size_t without = count - signature.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    set(signature.names[i],
        i >= without ? evaluate(*signature.defaults[i - without])
                     : maker_.undefined("parameter '" + signature.names[i] + "' was not provided"));
  }
  if (signature.takes_caller) set("caller", std::move(caller));
  if (signature.takes_more) set("varargs", maker_.sequence(Sequence::Kind::tuple, std::move(more)));
  if (signature.takes_named) set("kwargs", maker_.dict(std::move(named)));
  begin(statement.bodies[0]);
  run(statement.bodies[0]);
  return maker_.text(output.take());
}

// -- expressions

Value Machine::evaluate(const Expression& expression) {
  const Depth depth(*this);
  line_ = expression.line;
  switch (expression.kind) {
    case Kind::constant:
      return expression.constant;
    case Kind::name:
      return name(expression);
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return collection(expression);
    case Kind::attribute:
      return attribute(evaluate(*expression.operands[0]), expression.name);
    case Kind::item:
      return item_of(expression);
    case Kind::slice:
      fail("a slice outside of an index");
    case Kind::call:
      return call_of(expression);
    case Kind::filter: {
      const Value value = expression.operands[0] ? evaluate(*expression.operands[0]) : *find(" block");
      return filter(expression.name, value, arguments_of(expression, 1));
    }
    case Kind::test: {
      const Value value = evaluate(*expression.operands[0]);
      return test(expression.name, value, arguments_of(expression, 1));
    }
    case Kind::negate:
    case Kind::plus:
      return unary(expression);
    case Kind::not_:
      return !truth(evaluate(*expression.operands[0]));
    case Kind::binary: {
      const Value left = evaluate(*expression.operands[0]);
      return binary(expression.operators[0], left, evaluate(*expression.operands[1]));
    }
    case Kind::compare:
      return compare(expression);
    case Kind::concatenate:
      return concatenate(expression);
    case Kind::and_:
    case Kind::or_: {
      Value left = evaluate(*expression.operands[0]);
      if (truth(left) == (expression.kind == Kind::or_)) return left;
      return evaluate(*expression.operands[1]);
    }
    case Kind::conditional:
      if (truth(evaluate(*expression.operands[1]))) return evaluate(*expression.operands[0]);
      if (expression.operands[2]) return evaluate(*expression.operands[2]);
      return maker_.undefined("the inline if-expression has no else, and its condition is false");
  }
  return {};
}

Value Machine::name(const Expression& expression) {
  if (const Value* found = find(expression.name)) return *found;
  return global(*this, expression.name);
}

Value Machine::collection(const Expression& expression) {
  std::vector<Value> items;
  for (const ExpressionPtr& operand : expression.operands) items.push_back(evaluate(*operand));
  if (expression.kind != Kind::dict)
    return maker_.sequence(expression.kind == Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple,
                           std::move(items));
  std::vector<std::pair<Value, Value>> members;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    members.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  return maker_.dict(std::move(members));
}

Value Machine::item_of(const Expression& expression) {
  const Value of = evaluate(*expression.operands[0]);
  const Expression& index = *expression.operands[1];
  return index.kind == Kind::slice ? slice(of, index) : item(of, evaluate(index));
}

Value Machine::unary(const Expression& expression) {
  const Value value = evaluate(*expression.operands[0]);
  if (value.is_undefined()) fail(*value.as<Undefined>()->reason);
  if (!value.is_number()) fail("bad operand type for a sign: '" + type_name(value) + "'");
  if (expression.kind == Kind::plus) return value.integer() ? Value(*value.integer()) : value;
  if (const std::int64_t* whole = value.integer()) return binary(Operator::subtract, std::int64_t{0}, *whole);
  return -value.number();
}

Value Machine::compare(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1]);
    if (!compare(expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Machine::concatenate(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& operand : expression.operands) text += to_text(evaluate(*operand), budget());
  return maker_.text(std::move(text));
}

Arguments Machine::arguments_of(const Expression& expression, std::size_t first) {
  Arguments arguments;
  for (std::size_t i = first; i < expression.operands.size(); ++i)
    arguments.positional.push_back(evaluate(*expression.operands[i]));
  for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Machine::call_of(const Expression& expression) {
  const Value function = evaluate(*expression.operands[0]);
  const Arguments arguments = arguments_of(expression, 1);
  line_ = expression.line;
  Value result = call(function, arguments);
  line_ = expression.line;
  return result;
}

Value Machine::call(const Value& function, const Arguments& arguments) {
  if (function.is_undefined()) fail(*function.as<Undefined>()->reason);
  const Function* found = function.pointer<Function>();
  if (!found) fail("a " + type_name(function) + " is not callable");
  // The call may replace the variable that holds the function.
  const Value held = function;
  return found->call(*this, arguments);
}

Value Machine::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const Depth depth(*this);
  if (const std::string* text = value.text()) budget().spend(text->size() / 8);
  return filtered_by(*this, name, value, arguments);
}

Value Machine::attribute(const Value& of, const std::string& name) {
  if (of.is_undefined()) fail(*of.as<Undefined>()->reason);
  if (Method method = method_of(*this, of, name); method.known) return std::move(method.value);
  if (const Dict* dict = of.dict()) {
    if (const Value* found = jinja::find(*dict, maker_.text(name), budget())) return *found;
  }
  return maker_.undefined(of_object(of) + " has no attribute '" + excerpt(name) + "'");
}

namespace {

// Python's index: from the end if it is negative. Nothing outside.
std::optional<std::size_t> place(std::int64_t index, std::int64_t length) {
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<std::size_t>(index);
}

}  // namespace

Value Machine::item(const Value& of, const Value& index) {
  budget().spend(1 + (index.text() ? index.text()->size() / 16 : 0));
  if (of.is_undefined()) fail(*of.as<Undefined>()->reason);
  const std::int64_t* number = index.integer();
  if (const Sequence* sequence = of.sequence();
      sequence && number && sequence->kind <= Sequence::Kind::range) {
    if (const auto at = place(*number, std::ssize(sequence->items))) return sequence->items[*at];
  } else if (const std::string* text = of.text(); text && number) {
    budget().spend(1 + text->size() / 16);
    if (const auto at = place(*number, count_characters(*text))) {
      const std::size_t begin = byte_of(*text, static_cast<std::int64_t>(*at));
      return maker_.text(text->substr(begin, byte_of(std::string_view(*text).substr(begin), 1)),
                         of.is_safe());
    }
  } else if (const Dict* dict = of.dict()) {
    if (const Value* found = jinja::find(*dict, index, budget())) return *found;
  }
  if (const std::string* name = index.text()) {
    if (Method method = method_of(*this, of, *name); method.known) return std::move(method.value);
    return maker_.undefined(of_object(of) + " has no attribute '" + excerpt(*name) + "'");
  }
  return maker_.undefined(of_object(of) + " has no element " +
                          (index.is_number() ? to_text(index, budget()) : type_name(index)));
}

namespace {

struct Bounds {
  std::int64_t first = 0, last = 0, step = 1;
};

// slice.indices() of Python.
Bounds bounds_of(const Value* first, const Value* last, const Value* step, std::int64_t length) {
  const auto number = [](const Value* value) -> const std::int64_t* {
    if (!value || value->is_none()) return nullptr;
    if (value->is_undefined()) fail(*value->as<Undefined>()->reason);
    if (!value->integer()) fail("slice indices must be integers or None");
    return value->integer();
  };
  Bounds bounds;
  if (const std::int64_t* given = number(step)) bounds.step = *given;
  if (bounds.step == 0) fail("slice step cannot be zero");
  const bool back = bounds.step < 0;
  const std::int64_t lowest = back ? -1 : 0, highest = back ? length - 1 : length;
  const auto clamped = [&](const std::int64_t* given, std::int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + length : *given, lowest, highest);
  };
  bounds.first = clamped(number(first), back ? highest : lowest);
  bounds.last = clamped(number(last), back ? lowest : highest);
  // A step beyond the length has the effect of the length, and cannot overflow.
  bounds.step = std::clamp(bounds.step, -length - 1, length + 1);
  return bounds;
}

}  // namespace

Value Machine::slice(const Value& of, const Expression& indices) {
  Value given[3];
  const Value* bound[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!indices.operands[i]) continue;
    given[i] = evaluate(*indices.operands[i]);
    bound[i] = &given[i];
  }
  if (of.is_undefined()) fail(*of.as<Undefined>()->reason);
  const Sequence* sequence = of.sequence();
  if (of.text()) {
    budget().spend(1 + of.text()->size() / 4);
    const std::vector<std::string_view> all = characters(*of.text(), budget());
    const Bounds bounds = bounds_of(bound[0], bound[1], bound[2], std::ssize(all));
    std::string text;
    for (std::int64_t i = bounds.first; bounds.step > 0 ? i < bounds.last : i > bounds.last; i += bounds.step)
      text += all[static_cast<std::size_t>(i)];
    return maker_.text(std::move(text), of.is_safe());
  }
  // jinja2 compiles a slice into one of Python, so that a value without slices is an error and not undefined.
  if (!sequence || sequence->kind > Sequence::Kind::range) fail(of_object(of) + " has no slices");
  const Bounds bounds = bounds_of(bound[0], bound[1], bound[2], std::ssize(sequence->items));
  budget().check_room(sequence->items.size(), 2 * sizeof(Value));
  std::vector<Value> items;
  for (std::int64_t i = bounds.first; bounds.step > 0 ? i < bounds.last : i > bounds.last; i += bounds.step)
    items.push_back(sequence->items[static_cast<std::size_t>(i)]);
  return maker_.sequence(sequence->kind, std::move(items));
}

}  // namespace fovea::text::jinja
