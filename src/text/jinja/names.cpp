// Which names are undefined at the beginning of a scope. As jinja2's compiler has it (idtracking), which
// gives each scope variables of its own, and decides where their values come from before anything runs.
#include <set>
#include <string_view>

#include "text/jinja/syntax.h"

namespace fovea::text::jinja {
namespace {

// The names that a scope reads from outside of all scopes, or assigns.
struct Frame {
  const Frame* outer = nullptr;
  std::set<std::string_view> names;
};

bool knows(const Frame* frame, std::string_view name) {
  for (; frame; frame = frame->outer) {
    if (frame->names.count(name) > 0) return true;
  }
  return false;
}

class Scope {
 public:
  explicit Scope(const Frame* outer) { frame_.outer = outer; }

  void declare(std::string_view name) { frame_.names.insert(name); }
  void declare(const Target& target) {
    if (target.member.empty()) declare(target.name);
    for (const Target& part : target.parts) declare(part);
  }
  void read(const ExpressionPtr& expression) {
    if (!expression) return;
    if (expression->kind == Expression::Kind::name) read(expression->name);
    for (const ExpressionPtr& operand : expression->operands) read(operand);
    for (const auto& [name, value] : expression->named) read(value);
  }

  // The scopes within this one come last: they see all names that it has.
  void finish(Body& body) {
    undefined_ = &body.undefined;
    visit(body, Branch::no);
    for (Statement* statement : inner_) enter(*statement);
  }

 private:
  enum class Branch : std::uint8_t { no, yes };

  void read(std::string_view name) {
    if (!knows(&frame_, name)) frame_.names.insert(name);
  }
  // What a branch assigns is the variable until then.
  void assign(std::string_view name, Branch branch) {
    if (branch == Branch::no && !knows(&frame_, name)) undefined_->emplace_back(name);
    frame_.names.insert(name);
  }
  void assign(const Target& target, Branch branch) {
    if (!target.parts.empty()) {
      for (const Target& part : target.parts) assign(part, branch);
    } else if (target.member.empty()) {
      assign(target.name, branch);
    } else {
      read(target.name);
    }
  }

  void visit(Body& body, Branch branch) {
    for (Statement& statement : body.statements) visit(statement, branch);
  }
  void visit(Statement& statement, Branch branch) {
    using Kind = Statement::Kind;
    if (statement.kind == Kind::if_) return visit_if(statement);
    if (statement.kind == Kind::for_)
      read(statement.expressions[0]);
    else if (statement.kind != Kind::set_block)
      for (const ExpressionPtr& expression : statement.expressions) read(expression);
    if (statement.kind == Kind::set || statement.kind == Kind::set_block)
      assign(statement.targets[0], branch);
    if (statement.kind == Kind::macro) assign(statement.name, branch);
    if (!statement.bodies.empty()) inner_.push_back(&statement);
  }
  void visit_if(Statement& statement) {
    read(statement.expressions[0]);
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      if (i > 0 && i < statement.expressions.size()) read(statement.expressions[i]);
      visit(statement.bodies[i], Branch::yes);
    }
  }

  void enter(Statement& statement) {
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      Scope scope(&frame_);
      if (statement.kind == Statement::Kind::with || (statement.kind == Statement::Kind::for_ && i == 0))
        for (const Target& target : statement.targets) scope.declare(target);
      if (statement.kind == Statement::Kind::for_ && i == 0) scope.declare("loop");
      if (statement.signature) {
        for (const std::string& name : statement.signature->names) scope.declare(name);
        for (const char* name : {"caller", "varargs", "kwargs"}) scope.declare(name);
        for (const ExpressionPtr& value : statement.signature->defaults) scope.read(value);
      }
      scope.finish(statement.bodies[i]);
    }
  }

  Frame frame_;
  std::vector<std::string>* undefined_ = nullptr;
  std::vector<Statement*> inner_;
};

}  // namespace

void find_undefined(Body& body) {
  Scope(nullptr).finish(body);
}

}  // namespace fovea::text::jinja
