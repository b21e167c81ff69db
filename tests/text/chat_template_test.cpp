#include "fovea/text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

std::string rendered(std::string_view source, std::string_view variables = "{}") {
  return Template::parse(source, "t").render(variables, {}, std::time_t{1'700'000'000});
}
// The message of the error that a template ends with, or "".
std::string error_of(std::string_view source, std::string_view variables = "{}") {
  try {
    rendered(source, variables);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ChatTemplate, BlanksAroundTagsGoAsTransformersSetsIt) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n b\n  {% endif %}\nc\n"), "a\n b\nc");
  EXPECT_EQ(rendered("a {%- if true -%} b {%- endif +%}\n c"), "ab\n c");
  EXPECT_EQ(rendered("a\n  {%+ set x = 1 %}\n{{ x }}\n  {{- x }} {# no #}\nz"), "a\n  11 z");
  EXPECT_EQ(rendered("{% raw %} {{ x }} {% endraw %}\n."), " {{ x }} .");
}

TEST(ChatTemplate, ComputesAsPython) {
  EXPECT_EQ(rendered("{{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1e16 }} {{ 2 ** 3 }} {{ true + 1 }}"),
            "-4 2 3.5 1e+16 8 2");
  EXPECT_EQ(rendered("{{ 'naïve'[::-1] }}{{ [1, 2, 3][1:] }}{{ (1,) }}{{ {'a': none} }}"),
            "evïan[2, 3](1,){'a': None}");
  EXPECT_EQ(
      rendered("{{ 'a' in 'cat' and 1 not in [2] }}{{ 1 < 2 < 3 }}{{ x | default('d') }}{{ 'a' if x }}"),
      "TrueTrued");
  EXPECT_EQ(
      rendered("{{ m | tojson }}|{{ m | tojson(indent=1) }}", R"({"m": {"b": "é\"<", "a": [1.0, null]}})"),
      "{\"b\": \"é\\\"<\", \"a\": [1.0, null]}|{\n \"b\": \"é\\\"<\",\n \"a\": [\n  1.0,\n  null\n ]\n}");
  EXPECT_EQ(rendered("{{ ' a b '.split(none, 1) }}{{ ' a b '.rsplit(none, 1) }}"), "['a', 'b '][' a', 'b']");
  for (const char* value : {"1", "none", "{}", "{'a': 1}.keys()", "[1] | map('abs')"})
    EXPECT_NE(error_of(std::string("{{ (") + value + ")[:1] }}").find("has no slices"), std::string::npos)
        << value;
  EXPECT_EQ(rendered("{{ [2, 1] | sort(attribute='n') }}{{ [2, 1] | sort }}"), "[2, 1][1, 2]");
  EXPECT_EQ(rendered("{{ strftime_now('%Y-%m') }}"), "2023-11");
}

TEST(ChatTemplate, AssignmentsInLoopsStayThere) {
  EXPECT_EQ(rendered("{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
            "120");
  EXPECT_EQ(
      rendered(
          "{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"),
      "3");
  EXPECT_EQ(rendered("{% for i in range(9) if i % 2 %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 "
                     "%}{% break %}{% endif %}"
                     "{{ i }}/{{ loop.index }},{% else %}none{% endfor %}"),
            "1/1,5/3,");
}

TEST(ChatTemplate, MacrosReadTheScopeOfTheirDefinition) {
  EXPECT_EQ(rendered("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ late }}{% endmacro %}{% set late = 'L' %}"
                     "{% for late in [1] %}{{ m(1) }}{{ m(1, b=2) }}{% endfor %}"),
            "11L12L");
  EXPECT_EQ(rendered("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"),
            "3210");
  EXPECT_EQ(rendered("{% macro m() %}<{{ caller(2) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}"),
            "<2>");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  for (const auto& [source, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a\n{{ x.y }}", "line 2): 'x' is undefined"},
           {"\n\n{{ raise_exception('no ' ~ 1) }}", "line 3): the template refuses: no 1"},
           {"{% if %}", "expected an expression"},
           {"{% if x %}", "{% endif %} is missing"},
           {"{% include 'x' %}", "{% include %} is not read here"},
           {"{{ 'a' | nothing }}", "the filter 'nothing' is not done here"},
           {"{{ 1 is nothing }}", "the test 'nothing' is not done here"},
           {"{{ 'a'.zfill(3) }}", "'zfill' of a str is not done here"},
           {"{{ [].append(1) }}", "unsafe"},
           {"{{ ''.__class__.x }}", "no attribute '__class__'"},
           {"{{ (1] }}", "unexpected ']', expected ')'"},
           {"{{ 'a }}", "a string without its end"},
           {"{# a", "a comment without #}"},
           {"{{ 9999999999 * 9999999999 }}", "beyond 64 bits"},
           {"{{ 1 / 0 }}", "division by zero"},
           {"{% set messages.x = 1 %}", "is no namespace"}}) {
    EXPECT_NE(error_of(source).find(words), std::string::npos) << source << ": " << error_of(source);
  }
  EXPECT_NE(error_of("a", "[1]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of("a", "{\"a\": 1, \"a\": 2}").find("stands twice"), std::string::npos);
}

// Each ends by an error of ours, in bounded time and memory.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string many(100'000, '('), deep_list = std::string(5000, '[') + std::string(5000, ']');
  std::string blocks, sum = "1", nested = "x";
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  for (int i = 0; i < 5000; ++i) nested = "-" + nested;
  const std::string hostile[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ range(1000000000000) | list }}",
      "{{ 'a' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% "
      "endfor %}",
      "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
      "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}",
      "{% set n = namespace(x=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
      "{% set n = namespace(x=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | "
      "tojson }}",
      "{% set n = namespace(x=[], y=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% set n.y = "
      "[n.y, n.y] %}"
      "{% endfor %}{{ n.x == n.y }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
      "{{ 'a'.replace('', 'b' * 100000).replace('', 'c' * 100000) }}",
      "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
      "{{ 'a' | indent(99999999999) }}",
      "{{ [1] | tojson(indent=99999999999) }}",
      "{{ [1] | batch(99999999999, 0) | list }}",
      "{{ 'a'.ljust(99999999999) }}",
      "{{ 'x' | center(99999999999) }}",
      "{{ strftime_now('%9999999d') }}",
      "{{ " + many + " }}",
      "{{ " + deep_list + " }}",
      "{{ " + sum + " }}",
      "{{ " + nested + " }}",
      blocks,
      "{{ 2 ** 99999999999 }}",
      "{{ 3 ** 99 }}",
      std::string(5 << 20, 'a')};
  for (const std::string& source : hostile) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(error_of(source), "") << source.substr(0, 100);
    // About 2 s on a quiet machine, and sanitizers take ten times as long.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << source.substr(0, 100);
  }
}

// Namespaces that contain each other, and macros that read scopes in which they stand, are freed.
TEST(ChatTemplate, CyclesOfValuesEnd) {
  EXPECT_EQ(rendered("{% set a = namespace() %}{% set b = namespace(a=[a]) %}{% set a.b = {'b': b} %}"
                     "{% macro m() %}{{ m is callable }}{% endmacro %}{% set a.m = m %}{{ a.m() }}"
                     "{% for i in [1] %}{% set a.loop = loop %}{% endfor %}{{ a.loop.index }}"),
            "True1");
}

// Bytes of templates, mixed: each is rendered or refused, and never crashes.
TEST(ChatTemplate, RandomBytesAreRenderedOrRefused) {
  const std::string_view parts[] = {
      "{{",     "}}",    "{%",       "%}",   "-",         "if",  "for",    "in",       "x",       "set",
      "=",      "endif", "endfor",   "(",    ")",         "[",   "]",      "'",        "\"",      "|",
      "tojson", "loop",  ".",        "1",    "0",         "{",   "}",      ":",        ",",       " ",
      "\n",     "macro", "endmacro", "m",    "{#",        "#}",  "is",     "not",      "defined", "~",
      "+",      "*",     "range",    "list", "namespace", "raw", "endraw", "\xC3\xA9", "\\",      "else"};
  std::mt19937 random(1);
  std::size_t refused = 0;
  constexpr std::size_t count = 100'000;
  for (std::size_t i = 0; i < count; ++i) {
    std::string source = random() % 2 ? "{{ " : "{% set x = ";
    for (std::size_t n = random() % 20; n > 0; --n) source += parts[random() % std::size(parts)];
    source += source[1] == '{' ? " }}" : " %}{{ x }}";
    try {
      Template::parse(source, "t")
          .render(R"({"x": [1, {"m": "a"}], "m": {"x": "é"}})", {.steps = 10'000, .bytes = 1 << 20});
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_LT(refused, count);  // some are templates
  EXPECT_GT(refused, count / 10);
}

TEST(ChatTemplates, AreReadFromAFolder) {
  const Scratch scratch;
  const auto folder = scratch.folder();
  EXPECT_FALSE(ChatTemplates::are_in(folder));
  EXPECT_THROW(ChatTemplates::read(folder), FileError);
  files::write_file(folder / "tokenizer_config.json",
                    R"({"bos_token": {"content": "<s>"}, "eos_token": null, "chat_template":
                        [{"name": "default", "template": "{{ bos_token }}{{ eos_token is defined }}{{ messages }}"},
                         {"name": "tool_use", "template": "{{ tools[0].n }}{{ add_generation_prompt }}{{ more }}"}]})");
  const Chat chat{.messages = R"([{"role": "user", "content": null, "reasoning": "r"}])"};
  const ChatTemplates templates = ChatTemplates::read(folder);
  EXPECT_EQ(templates.render(chat),
            "<s>False[{'thinking': 'r', 'role': 'user', 'reasoning': 'r', 'reasoning_content': 'r'}]");
  EXPECT_EQ(templates.render({chat.messages, R"([{"n": 1}])", R"({"more": "m"})", Chat::Answer::left_out}),
            "1Falsem");
  EXPECT_THROW(templates.render(chat, "none"), InvalidArgument);
  EXPECT_THROW(templates.render({"[]"}), InvalidArgument);
  EXPECT_THROW(templates.render({"[1]"}), InvalidArgument);
  EXPECT_THROW(templates.render({chat.messages, "{}"}), InvalidArgument);
  EXPECT_THROW(templates.render({chat.messages, "", R"({"messages": 1})"}), InvalidArgument);
  files::write_file(folder / "chat_template.jinja", "file");
  EXPECT_EQ(ChatTemplates::read(folder).render(chat), "file");
}

}  // namespace
}  // namespace fovea::text
