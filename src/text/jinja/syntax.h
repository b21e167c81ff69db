// A template as a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace fovea::text::jinja {

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : std::uint8_t {
    constant,
    name,
    list,       ///< operands
    tuple,      ///< operands
    dict,       ///< operands: key, value, key, value ...
    attribute,  ///< operands[0].name
    item,       ///< operands[0][operands[1]]
    slice,      ///< as operands[1] of an item: first, last, step, each of which may be absent
    call,       ///< operands[0](the others, named)
    filter,     ///< operands[0] | name(the others, named); operands[0] is absent before a block
    test,       ///< operands[0] is name(the others, named)
    negate,
    plus,
    not_,
    binary,       ///< operands[0] operators[0] operands[1]
    compare,      ///< operands[0] operators[0] operands[1] operators[1] operands[2] ...
    concatenate,  ///< the texts of all operands
    and_,
    or_,
    conditional  ///< operands[0] if operands[1] else operands[2], which may be absent
  };
  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<Operator> operators;
};

/// What a value is assigned to: a name, a member of a namespace, or a tuple of targets.
struct Target {
  int line = 1;
  std::string name, member;
  std::vector<Target> parts;
};

struct Statement;
struct Body {
  std::vector<Statement> statements;
  /// Of a body that is a scope: names that it assigns, and that are undefined in it until then.
  std::vector<std::string> undefined;
};

/// Of a macro, and of what a call block hands to a macro.
struct Signature {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  ///< of the last names
  bool takes_more = false, takes_named = false, takes_caller = false;
};

struct Statement {
  enum class Kind : std::uint8_t {
    text,       ///< name is printed
    output,     ///< expressions are printed
    if_,        ///< expressions[i] decides on bodies[i]; a last body without one is the else
    for_,       ///< target in expressions[0], if expressions[1] is true; bodies: the loop, and else
    set,        ///< target = expressions[0]
    set_block,  ///< target = bodies[0], through the filter expressions[0] if it is there
    macro,      ///< name, signature, bodies[0]
    call,       ///< expressions[0] with signature and bodies[0] as its caller
    with,       ///< targets = expressions, for bodies[0]
    filter,     ///< expressions[0] of bodies[0]
    scope,      ///< bodies[0]
    break_,
    continue_
  };
  Kind kind = Kind::text;
  int line = 1;
  std::string name;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Body> bodies;
  std::unique_ptr<Signature> signature;
};

/// Says of each scope which names are undefined at its beginning. In jinja2 these are the names that the
/// scope assigns, outside of branches, before it reads them, and that no scope around it has.
void find_undefined(Body& body);

/// Throws SyntaxError for what is no template, for statements that no chat template has, and for nesting
/// beyond limits.
Body parse(std::string_view source);

}  // namespace fovea::text::jinja
