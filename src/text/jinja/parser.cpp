#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "core/excerpt.h"
#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace fovea::text::jinja {
namespace {

using Kind = Expression::Kind;

// Published templates nest 12 deep. Each level of brackets takes a dozen calls of this parser.
constexpr int kMostNesting = 60;
// Of a tree of operators: a sum of n terms is n deep.
constexpr int kMostDepth = 200;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokens_of(source)) {}

  Body run() {
    Body body = statements({});
    if (current().kind != Token::Kind::end) fail("unexpected " + described());
    return body;
  }

 private:
  // -- tokens

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(std::string_view symbol) const {
    return current().kind == Token::Kind::symbol && current().text == symbol;
  }
  bool is_name(std::string_view name) const {
    return current().kind == Token::Kind::name && current().text == name;
  }
  bool skip(std::string_view symbol) { return is(symbol) && advance(); }
  bool skip_name(std::string_view name) { return is_name(name) && advance(); }
  bool advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
    return true;
  }
  std::string described() const {
    switch (current().kind) {
      case Token::Kind::end:
        return "end of the template";
      case Token::Kind::block_end:
      case Token::Kind::variable_end:
        return "end of the tag";
      default:
        return "'" + excerpt(current().text) + "'";
    }
  }
  [[noreturn]] void fail(const std::string& reason) const { throw SyntaxError{current().line, reason}; }
  void expect(std::string_view symbol) {
    if (!skip(symbol)) fail("expected '" + std::string(symbol) + "', got " + described());
  }
  void expect(Token::Kind kind) {
    if (current().kind != kind) fail("expected the end of the tag, got " + described());
    advance();
  }
  std::string expect_name() {
    if (current().kind != Token::Kind::name) fail("expected a name, got " + described());
    std::string name = current().text;
    advance();
    return name;
  }

  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMostNesting)
        parser_.fail("nests deeper than " + std::to_string(kMostNesting));
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  // -- nodes

  ExpressionPtr node(Kind kind, int line) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line;
    return made;
  }
  void take(ExpressionPtr& node, ExpressionPtr operand) const {
    if (operand) deepen(*node, *operand);
    node->operands.push_back(std::move(operand));
  }
  void deepen(Expression& node, const Expression& operand) const {
    node.depth = std::max(node.depth, operand.depth + 1);
    if (node.depth > kMostDepth) fail("an expression nests deeper than " + std::to_string(kMostDepth));
  }
  template <typename... Operands>
  ExpressionPtr node_of(Kind kind, int line, Operands... operands) const {
    ExpressionPtr made = node(kind, line);
    (take(made, std::move(operands)), ...);
    return made;
  }

  // -- statements

  // Up to a tag that begins with one of `ends`, at whose name it stops.
  Body statements(std::initializer_list<std::string_view> ends) {
    Body body;
    for (;;) {
      const Token& token = current();
      if (token.kind == Token::Kind::data) {
        Statement& text = body.statements.emplace_back();
        text.line = token.line;
        text.name = token.text;
        advance();
      } else if (token.kind == Token::Kind::variable_begin) {
        Statement& output = body.statements.emplace_back();
        output.kind = Statement::Kind::output;
        output.line = token.line;
        advance();
        output.expressions.push_back(tuple(Conditions::with));
        expect(Token::Kind::variable_end);
      } else if (token.kind == Token::Kind::block_begin) {
        advance();
        for (const std::string_view end : ends) {
          if (is_name(end)) return body;
        }
        body.statements.push_back(statement());
        expect(Token::Kind::block_end);
      } else {
        if (ends.size() > 0)
          fail("the template ends, and {% " + std::string(*(ends.end() - 1)) + " %} is missing");
        return body;
      }
    }
  }
  // The body of a tag, up to and with the name of its end.
  Body body_until(std::initializer_list<std::string_view> ends) {
    skip(":");
    expect(Token::Kind::block_end);
    return statements(ends);
  }

  Statement statement() {
    const Nesting nesting(*this);
    const int line = current().line;
    const std::string tag = expect_name();
    Statement made;
    made.line = line;
    if (tag == "if")
      parse_if(made);
    else if (tag == "for")
      parse_for(made);
    else if (tag == "set")
      parse_set(made);
    else if (tag == "macro")
      parse_macro(made);
    else if (tag == "call")
      parse_call_block(made);
    else if (tag == "with")
      parse_with(made);
    else if (tag == "filter")
      parse_filter_block(made);
    else if (tag == "generation")
      parse_generation(made);
    else if (tag == "print")
      parse_print(made);
    else if (tag == "break" || tag == "continue")
      parse_jump(made, tag);
    else
      throw SyntaxError{line, "{% " + excerpt(tag) + " %} is not read here"};
    return made;
  }

  void parse_if(Statement& made) {
    made.kind = Statement::Kind::if_;
    for (;;) {
      made.expressions.push_back(tuple(Conditions::without));
      made.bodies.push_back(body_until({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else")) made.bodies.push_back(body_until({"endif"}));
      skip_name("endif");
      return;
    }
  }

  void parse_for(Statement& made) {
    made.kind = Statement::Kind::for_;
    made.targets.push_back(target());
    if (!skip_name("in")) fail("expected 'in', got " + described());
    made.expressions.push_back(tuple(Conditions::without, "recursive"));
    made.expressions.push_back(skip_name("if") ? expression() : nullptr);
    if (is_name("recursive")) fail("recursive loops are not done here");
    ++loops_;
    made.bodies.push_back(body_until({"else", "endfor"}));
    --loops_;
    if (skip_name("else")) made.bodies.push_back(body_until({"endfor"}));
    skip_name("endfor");
  }

  void parse_set(Statement& made) {
    made.targets.push_back(target());
    if (skip("=")) {
      made.kind = Statement::Kind::set;
      made.expressions.push_back(tuple(Conditions::with));
      return;
    }
    made.kind = Statement::Kind::set_block;
    made.expressions.push_back(filters(nullptr));
    made.bodies.push_back(body_until({"endset"}));
    skip_name("endset");
  }

  void parse_signature(Signature& signature) {
    expect("(");
    while (!is(")")) {
      if (!signature.names.empty()) expect(",");
      signature.names.push_back(expect_name());
      if (skip("="))
        signature.defaults.push_back(expression());
      else if (!signature.defaults.empty())
        fail("an argument without a default behind one with it");
    }
    expect(")");
  }

  // A body that is called, from elsewhere: a loop around it is none of its own.
  Body called_body(Signature& signature, std::initializer_list<std::string_view> end) {
    const int loops = std::exchange(loops_, 0);
    std::set<std::string> outer;
    outer.swap(names_);
    Body body = body_until(end);
    const auto uses = [&](const char* name) {
      return names_.count(name) > 0 && std::ranges::find(signature.names, name) == signature.names.end();
    };
    signature.takes_more = uses("varargs");
    signature.takes_named = uses("kwargs");
    signature.takes_caller = uses("caller");
    names_.merge(outer);
    loops_ = loops;
    return body;
  }

  void parse_macro(Statement& made) {
    made.kind = Statement::Kind::macro;
    made.name = expect_name();
    made.signature = std::make_unique<Signature>();
    parse_signature(*made.signature);
    made.bodies.push_back(called_body(*made.signature, {"endmacro"}));
    skip_name("endmacro");
  }

  void parse_call_block(Statement& made) {
    made.kind = Statement::Kind::call;
    made.signature = std::make_unique<Signature>();
    if (is("(")) parse_signature(*made.signature);
    made.expressions.push_back(expression());
    if (made.expressions.back()->kind != Kind::call) fail("expected a call");
    made.bodies.push_back(called_body(*made.signature, {"endcall"}));
    skip_name("endcall");
  }

  void parse_with(Statement& made) {
    made.kind = Statement::Kind::with;
    while (current().kind != Token::Kind::block_end) {
      if (!made.targets.empty()) expect(",");
      made.targets.push_back(target());
      expect("=");
      made.expressions.push_back(expression());
    }
    made.bodies.push_back(body_until({"endwith"}));
    skip_name("endwith");
  }

  void parse_filter_block(Statement& made) {
    made.kind = Statement::Kind::filter;
    made.expressions.push_back(filters(one_filter(nullptr)));
    made.bodies.push_back(body_until({"endfilter"}));
    skip_name("endfilter");
  }

  // transformers' own tag: what stands in it is what a model wrote. There it is the body of a call, so that
  // no jump leaves it.
  void parse_generation(Statement& made) {
    made.kind = Statement::Kind::scope;
    const int loops = std::exchange(loops_, 0);
    made.bodies.push_back(body_until({"endgeneration"}));
    loops_ = loops;
    skip_name("endgeneration");
  }

  void parse_print(Statement& made) {
    made.kind = Statement::Kind::output;
    while (current().kind != Token::Kind::block_end) {
      if (!made.expressions.empty()) expect(",");
      made.expressions.push_back(expression());
    }
  }

  void parse_jump(Statement& made, const std::string& tag) {
    if (loops_ == 0) fail("{% " + tag + " %} outside of a loop");
    made.kind = tag == "break" ? Statement::Kind::break_ : Statement::Kind::continue_;
  }

  // -- targets

  static bool is_constant(const std::string& name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
           name == "None";
  }
  Target one_target() {
    const Nesting nesting(*this);
    if (skip("(")) {
      Target inner = target();
      expect(")");
      return inner;
    }
    Target made;
    made.line = current().line;
    if (is_constant(current().text)) fail("cannot assign to " + described());
    made.name = expect_name();
    if (skip(".")) {
      made.member = expect_name();
      names_.insert(made.name);
    }
    return made;
  }
  Target target() {
    Target first = one_target();
    if (!is(",")) return first;
    Target all;
    all.line = first.line;
    all.parts.push_back(std::move(first));
    while (skip(",")) {
      if (current().kind != Token::Kind::name && !is("(")) break;
      if (is_name("in")) break;
      all.parts.push_back(one_target());
    }
    return all;
  }

  // -- expressions

  enum class Conditions : std::uint8_t { with, without };

  ExpressionPtr expression(Conditions conditions = Conditions::with) {
    const Nesting nesting(*this);
    return conditions == Conditions::with ? conditional() : or_expression();
  }

  // Several expressions between commas are a tuple. It ends at the tag's end, at ")" or at the name `end`.
  ExpressionPtr tuple(Conditions conditions, std::string_view end = {}, bool brackets = false) {
    const int line = current().line;
    std::vector<ExpressionPtr> parts;
    bool commas = false;
    for (;;) {
      if (!parts.empty()) expect(",");
      const Token::Kind kind = current().kind;
      if (kind == Token::Kind::variable_end || kind == Token::Kind::block_end || is(")") ||
          (!end.empty() && is_name(end)))
        break;
      parts.push_back(expression(conditions));
      if (!is(",")) break;
      commas = true;
    }
    if (!commas) {
      if (!parts.empty()) return std::move(parts.front());
      if (!brackets) fail("expected an expression, got " + described());
    }
    ExpressionPtr made = node(Kind::tuple, line);
    for (ExpressionPtr& part : parts) take(made, std::move(part));
    return made;
  }

  ExpressionPtr conditional() {
    const int line = current().line;
    ExpressionPtr value = or_expression();
    while (skip_name("if")) {
      ExpressionPtr condition = or_expression(), otherwise;
      if (skip_name("else")) {
        const Nesting nesting(*this);
        otherwise = conditional();
      }
      value = node_of(Kind::conditional, line, std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr or_expression() {
    ExpressionPtr left = and_expression();
    while (is_name("or")) {
      const int line = current().line;
      advance();
      left = node_of(Kind::or_, line, std::move(left), and_expression());
    }
    return left;
  }

  ExpressionPtr and_expression() {
    ExpressionPtr left = not_expression();
    while (is_name("and")) {
      const int line = current().line;
      advance();
      left = node_of(Kind::and_, line, std::move(left), not_expression());
    }
    return left;
  }

  ExpressionPtr not_expression() {
    if (!is_name("not")) return compare();
    const Nesting nesting(*this);
    const int line = current().line;
    advance();
    return node_of(Kind::not_, line, not_expression());
  }

  bool comparison(Operator& found) {
    static const std::pair<std::string_view, Operator> symbols[] = {
        {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
        {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
    for (const auto& [symbol, op] : symbols) {
      if (!skip(symbol)) continue;
      found = op;
      return true;
    }
    if (skip_name("in")) {
      found = Operator::in;
      return true;
    }
    if (is_name("not") && ahead().kind == Token::Kind::name && ahead().text == "in") {
      advance();
      advance();
      found = Operator::not_in;
      return true;
    }
    return false;
  }

  ExpressionPtr compare() {
    const int line = current().line;
    ExpressionPtr left = sum();
    Operator op{};
    if (!comparison(op)) return left;
    ExpressionPtr made = node_of(Kind::compare, line, std::move(left));
    do {
      made->operators.push_back(op);
      take(made, sum());
    } while (comparison(op));
    return made;
  }

  ExpressionPtr binary(Operator op, ExpressionPtr left, ExpressionPtr right, int line) {
    ExpressionPtr made = node_of(Kind::binary, line, std::move(left), std::move(right));
    made->operators.push_back(op);
    return made;
  }

  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (is("+") || is("-")) {
      const int line = current().line;
      const Operator op = is("+") ? Operator::add : Operator::subtract;
      advance();
      left = binary(op, std::move(left), concatenation(), line);
    }
    return left;
  }

  ExpressionPtr concatenation() {
    const int line = current().line;
    ExpressionPtr first = product();
    if (!is("~")) return first;
    ExpressionPtr made = node_of(Kind::concatenate, line, std::move(first));
    while (skip("~")) take(made, product());
    return made;
  }

  ExpressionPtr product() {
    ExpressionPtr left = power();
    for (;;) {
      const int line = current().line;
      Operator op{};
      if (skip("*"))
        op = Operator::multiply;
      else if (skip("/"))
        op = Operator::divide;
      else if (skip("//"))
        op = Operator::floor_divide;
      else if (skip("%"))
        op = Operator::modulo;
      else
        return left;
      left = binary(op, std::move(left), power(), line);
    }
  }

  ExpressionPtr power() {
    ExpressionPtr left = unary(true);
    while (is("**")) {
      const int line = current().line;
      advance();
      left = binary(Operator::power, std::move(left), unary(true), line);
    }
    return left;
  }

  ExpressionPtr unary(bool with_filters) {
    const int line = current().line;
    ExpressionPtr made;
    if (is("-") || is("+")) {
      const Nesting nesting(*this);
      const Kind kind = is("-") ? Kind::negate : Kind::plus;
      advance();
      made = node_of(kind, line, unary(false));
    } else {
      made = primary();
    }
    made = postfix(std::move(made));
    return with_filters ? filters_and_tests(std::move(made)) : std::move(made);
  }

  ExpressionPtr constant(Value value, int line) {
    ExpressionPtr made = node(Kind::constant, line);
    made->constant = std::move(value);
    return made;
  }

  ExpressionPtr primary() {
    const Token token = current();
    switch (token.kind) {
      case Token::Kind::name: {
        advance();
        if (token.text == "true" || token.text == "True") return constant(true, token.line);
        if (token.text == "false" || token.text == "False") return constant(false, token.line);
        if (token.text == "none" || token.text == "None") return constant(None{}, token.line);
        ExpressionPtr made = node(Kind::name, token.line);
        made->name = token.text;
        names_.insert(token.text);
        return made;
      }
      case Token::Kind::string: {
        std::string text;
        for (; current().kind == Token::Kind::string; advance()) text += current().text;
        return constant(Text{std::make_shared<const std::string>(std::move(text))}, token.line);
      }
      case Token::Kind::integer: {
        advance();
        return constant(integer(token), token.line);
      }
      case Token::Kind::real:
        advance();
        return constant(std::strtod(token.text.c_str(), nullptr), token.line);
      case Token::Kind::symbol:
        if (token.text == "[" || token.text == "{") return collection(token);
        if (token.text == "(") {
          advance();
          ExpressionPtr made = tuple(Conditions::with, {}, true);
          expect(")");
          return made;
        }
        [[fallthrough]];
      default:
        fail("unexpected " + described());
    }
  }

  std::int64_t integer(const Token& token) const {
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error != std::errc()) fail("a whole number beyond 64 bits: " + excerpt(token.text));
    return value;
  }

  ExpressionPtr collection(const Token& token) {
    const bool dict = token.text == "{";
    const std::string_view end = dict ? "}" : "]";
    advance();
    ExpressionPtr made = node(dict ? Kind::dict : Kind::list, token.line);
    while (!is(end)) {
      if (!made->operands.empty()) {
        expect(",");
        if (is(end)) break;
      }
      take(made, expression());
      if (dict) {
        expect(":");
        take(made, expression());
      }
    }
    expect(end);
    return made;
  }

  ExpressionPtr postfix(ExpressionPtr made) {
    for (;;) {
      if (is("."))
        made = attribute(std::move(made));
      else if (is("["))
        made = item(std::move(made));
      else if (is("("))
        made = call(std::move(made));
      else
        return made;
    }
  }

  ExpressionPtr attribute(ExpressionPtr of) {
    const int line = current().line;
    advance();
    if (current().kind == Token::Kind::integer) {
      ExpressionPtr index = constant(integer(current()), line);
      advance();
      return node_of(Kind::item, line, std::move(of), std::move(index));
    }
    ExpressionPtr made = node_of(Kind::attribute, line, std::move(of));
    made->name = expect_name();
    return made;
  }

  ExpressionPtr item(ExpressionPtr of) {
    const int line = current().line;
    advance();
    std::vector<ExpressionPtr> indices;
    while (!is("]")) {
      if (!indices.empty()) expect(",");
      indices.push_back(index());
    }
    expect("]");
    if (indices.size() == 1) return node_of(Kind::item, line, std::move(of), std::move(indices.front()));
    ExpressionPtr all = node(Kind::tuple, line);
    for (ExpressionPtr& one : indices) {
      if (one->kind == Kind::slice) fail("a slice among several indices");
      take(all, std::move(one));
    }
    return node_of(Kind::item, line, std::move(of), std::move(all));
  }

  ExpressionPtr index() {
    const int line = current().line;
    ExpressionPtr first, last, step;
    if (!is(":")) first = expression();
    if (!skip(":")) return first;
    if (!is(":") && !is("]") && !is(",")) last = expression();
    if (skip(":") && !is("]") && !is(",")) step = expression();
    return node_of(Kind::slice, line, std::move(first), std::move(last), std::move(step));
  }

  // "(a, b, name=c)", behind what is called.
  void arguments(ExpressionPtr& made) {
    expect("(");
    bool first = true;
    while (!is(")")) {
      if (!std::exchange(first, false)) {
        expect(",");
        if (is(")")) break;
      }
      if (is("*") || is("**")) fail("calls with * and ** are not read here");
      if (current().kind == Token::Kind::name && ahead().kind == Token::Kind::symbol && ahead().text == "=") {
        std::string name = expect_name();
        advance();
        ExpressionPtr value = expression();
        deepen(*made, *value);
        made->named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!made->named.empty()) fail("an argument without a name behind one with it");
        take(made, expression());
      }
    }
    expect(")");
  }

  ExpressionPtr call(ExpressionPtr of) {
    ExpressionPtr made = node_of(Kind::call, current().line, std::move(of));
    arguments(made);
    return made;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip(".")) name += "." + expect_name();
    return name;
  }

  ExpressionPtr one_filter(ExpressionPtr of) {
    ExpressionPtr made = node_of(Kind::filter, current().line, std::move(of));
    made->name = dotted_name();
    if (is("(")) arguments(made);
    return made;
  }

  ExpressionPtr filters(ExpressionPtr of) {
    while (skip("|")) of = one_filter(std::move(of));
    return of;
  }

  ExpressionPtr test(ExpressionPtr of) {
    const int line = current().line;
    advance();
    const bool negated = skip_name("not");
    ExpressionPtr made = node_of(Kind::test, line, std::move(of));
    made->name = dotted_name();
    const Token::Kind kind = current().kind;
    if (is("(")) {
      arguments(made);
    } else if ((kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
               kind == Token::Kind::string || kind == Token::Kind::integer || kind == Token::Kind::real ||
               is("[") || is("{")) {
      if (is_name("is")) fail("several tests behind each other");
      take(made, postfix(primary()));
    }
    return negated ? node_of(Kind::not_, line, std::move(made)) : std::move(made);
  }

  ExpressionPtr filters_and_tests(ExpressionPtr made) {
    for (;;) {
      if (is("|"))
        made = filters(std::move(made));
      else if (is_name("is"))
        made = test(std::move(made));
      else if (is("("))
        made = call(std::move(made));
      else
        return made;
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0, loops_ = 0;
  std::set<std::string> names_;  // that the body of the macro reads
};

}  // namespace

Body parse(std::string_view source) {
  Body body = Parser(source).run();
  find_undefined(body);
  return body;
}

}  // namespace fovea::text::jinja
