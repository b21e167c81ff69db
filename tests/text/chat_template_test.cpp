#include "fovea/text/chat_template.h"

#include <gtest/gtest.h>

#include <array>
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

// Python's order of a list with a NaN depends on its algorithm: ours is an error.
TEST(ChatTemplate, NaNsHaveNoOrder) {
  EXPECT_NE(error_of("{{ [3, 'nan' | float, 1, 2] | sort }}").find("sort() of a NaN"), std::string::npos);
  EXPECT_NE(error_of("{{ [[3], ['nan' | float], [1]] | sort }}").find("sort() of a NaN"), std::string::npos);
  EXPECT_NE(error_of("{{ {'a': 3, 'b': 'nan' | float} | dictsort(by='value') }}").find("sort() of a NaN"),
            std::string::npos);
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

// A block that a jump leaves assigns and prints nothing; the text of `with` stands.
TEST(ChatTemplate, JumpsLeaveTheBlocksAroundThem) {
  const auto loop = [](const std::string& body) {
    return rendered("{% for i in [1, 2, 3] %}" + body + "{% endfor %}.");
  };
  for (const auto& [jump, with, set, filter] : std::initializer_list<std::array<const char*, 4>>{
           {"break", "a1.", "1a.", "A1."}, {"continue", "a1a3.", "1a3a.", "A1A3."}}) {
    const std::string leave = "a{% if i == 2 %}{% " + std::string(jump) + " %}{% endif %}";
    EXPECT_EQ(loop("{% with x = i %}{% if x == 2 %}{% " + std::string(jump) +
                   " %}{% endif %}a{% endwith %}{{ i }}"),
              with);
    EXPECT_EQ(loop("{% set x %}" + leave + "{% endset %}{{ i }}{{ x }}"), set);
    EXPECT_EQ(loop("{% set x | lower %}" + leave + "{% endset %}{{ i }}{{ x }}"), set);
    EXPECT_EQ(loop("{% filter upper %}" + leave + "{% endfilter %}{{ i }}"), filter);
  }
  EXPECT_EQ(
      rendered("{% for i in [1, 2] %}{% with %}{% set x %}{% filter upper %}{% continue %}{% endfilter %}"
               "{% endset %}{% endwith %}b{% else %}c{% endfor %}d"),
      "d");
  for (const char* body :
       {"{% generation %}{% break %}{% endgeneration %}", "{% macro m() %}{% break %}{% endmacro %}"})
    EXPECT_NE(error_of("{% for i in [1] %}" + std::string(body) + "{% endfor %}").find("outside of a loop"),
              std::string::npos)
        << body;
}

// In jinja2 a name that a scope assigns is undefined there until then, also for the scopes within it. One
// that the scope reads first, or that only a branch assigns, is the variable.
TEST(ChatTemplate, NamesThatAScopeAssignsLaterAreUndefinedInIt) {
  const std::string_view variables = R"({"x": "v", "l": [1, 2]})";
  for (const auto& [source, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{% for i in l %}{% for j in l %}{{ x }}{% endfor %}{% set x = i %}{{ x }}{% endfor %}", "12"},
           {"{% for i in l %}{{ x }}{% for j in l %}{{ x }}{% endfor %}{% set x = i %}{{ x }}{% endfor %}",
            "vvv1vvv2"},
           {"{% for i in l %}{% for j in l %}{{ x }}{% endfor %}{% if i %}{% set x = i %}{% endif %}{{ x }}"
            "{% endfor %}",
            "vv1vv2"},
           {"{% for j in l %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}", "1"},
           {"{{ x }}{% for j in l %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}", "vvv1"},
           {"{% for i in l %}{% set x = x ~ i %}{{ x }}{% endfor %}{{ x }}", "v1v2v"},
           {"{% for i in l %}{% set y %}{{ x }}{% endset %}{{ y }}{% set x = 1 %}{% endfor %}", ""},
           {"{% for i in l %}{% filter upper %}{{ x }}{% endfilter %}{% set x = 1 %}{% endfor %}", ""},
           {"{% for i in l %}{% with a = x %}{{ x }}{% endwith %}{% set x = 1 %}{% endfor %}", "vv"},
           {"{% for i in l %}{% with a = 1 %}{{ x }}{% endwith %}{% set x = 1 %}{% endfor %}", ""},
           {"{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}", "1"},
           {"{% for i in l %}{% for j in l %}{{ x is defined }}{% endfor %}{% macro x() %}{% endmacro %}{% "
            "endfor %}",
            "FalseFalseFalseFalse"}})
    EXPECT_EQ(rendered(source, variables), text) << source;
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
           {"{{ 'a' % ([1] | select) }}", "not all arguments converted"},
           {"{% set messages.x = 1 %}", "is no namespace"}}) {
    EXPECT_NE(error_of(source).find(words), std::string::npos) << source << ": " << error_of(source);
  }
  EXPECT_NE(error_of("a", "[1]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of("a", "{\"a\": 1, \"a\": 2}").find("stands twice"), std::string::npos);
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
