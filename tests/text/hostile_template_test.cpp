// Templates that want more time, memory or depth than there is. Each renders in a process of its own, which
// says what it took, and whose crash is one failed template.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "files/fuzz_count.h"
#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "fovea/text/chat_template.h"

namespace fovea::text {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

enum class End : int { rendered = 10, refused = 11 };

struct Cost {
  int status = 0;
  double seconds = 0.0;    // of the processor
  double mebibytes = 0.0;  // at most at once, with the few of the test program
};

// The limits end what the interpreter does not.
void limit(int resource, rlim_t most) {
  const rlimit limits{most, most};
  setrlimit(resource, &limits);
}

Cost cost_of(const std::string& source) {
  const pid_t child = fork();
  if (child == 0) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, kSanitized ? 300 : 30);
    if (!kSanitized) limit(RLIMIT_AS, rlim_t{4} << 30);
    End end = End::rendered;
    try {
      Template::parse(source, "t").render("{}");
    } catch (const Error&) {
      end = End::refused;
    }
    _exit(static_cast<int>(end));
  }
  Cost cost;
  rusage usage{};
  if (child < 0 || wait4(child, &cost.status, 0, &usage) != child) {
    ADD_FAILURE() << "no process";
    return cost;
  }
  cost.seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  cost.mebibytes = static_cast<double>(usage.ru_maxrss) / 1024.0;
  return cost;
}

bool ended(const Cost& cost, End end) {
  return WIFEXITED(cost.status) && WEXITSTATUS(cost.status) == static_cast<int>(end);
}

// The budget of 20 million steps is about 2 s, and that of 256 MiB counts most bytes that were made. The
// bounds leave room for slower processors and for what is freed at once, and not for an operation that is not
// counted.
void expect_bounded(const Cost& cost, const std::string& source) {
  if (kSanitized) return;  // ten times the time, and memory that is kept back
  EXPECT_LT(cost.seconds, 8.0) << source.substr(0, 200);
  EXPECT_LT(cost.mebibytes, 600.0) << source.substr(0, 200);
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

std::string variables_of(int count) {
  std::string source;
  for (int i = 0; i < count; ++i) source += "{% set v" + std::to_string(i) + " = 1 %}";
  return source;
}

TEST(HostileTemplate, EndsByAnError) {
  const std::string many(100'000, '('), deep_list = std::string(5000, '[') + std::string(5000, ']');
  std::string blocks, sum = "1", nested = "x";
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  for (int i = 0; i < 5000; ++i) nested = "-" + nested;
  const std::string hostile[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ range(1000000000000) | list }}", "{{ 'a' * 99999999999 }}", "{{ [0] * 99999999999 }}",
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
      "{{ ('a' * 100000).replace('a', 'b' * 100000) }}", "{{ 'a' | indent(99999999999) }}",
      "{{ [1] | tojson(indent=99999999999) }}", "{{ [1] | batch(99999999999, 0) | list }}",
      "{{ 'a'.ljust(99999999999) }}", "{{ 'x' | center(99999999999) }}", "{{ strftime_now('%9999999d') }}",
      "{{ " + many + " }}", "{{ " + deep_list + " }}", "{{ " + sum + " }}", "{{ " + nested + " }}", blocks,
      // Loops that contain each other by what loop.changed() keeps.
      "{% set ns = namespace(l=none) %}{% for i in range(100000) %}{% for j in [1] %}{{ loop.changed([ns.l]) "
      "}}"
      "{% set ns.l = loop %}{% endfor %}{% endfor %}",
      "{% for i in [1] %}{{ loop.changed([loop]) }}{% endfor %}",
      "{% for i in [1] %}{{ loop.changed({'a': (1, [loop.changed])}) }}{% endfor %}",
      // Counts whose bytes overflow.
      "{{ [1] | batch(576460752303423488, 0) | list }}", "{{ [1] | batch(9223372036854775807, 0) | list }}",
      "{{ 'a'.ljust(4611686018427387904, 'é') }}", "{{ 'a' * 9223372036854775807 }}",
      "{{ [1] * 9223372036854775807 }}",
      // Filters of filters.
      "{{ 'a' | map(" + repeated("'map', ", 12'000) + "'upper') | list }}",
      "{{ 'a' | map(" + repeated("'map', ", 30'000) + "'upper') | list }}",
      // Characters and parts, each of which is larger than its text.
      "{% set a = 'a' * 120000000 %}{{ a[::2] | length }}",
      "{% set a = 'a' * 120000000 %}{{ a | list | length }}",
      "{% set a = 'a,' * 60000000 %}{{ a.split(',') | length }}",
      "{% set a = 'a ' * 60000000 %}{{ a.split() | length }}",
      "{% set a = ',a' * 60000000 %}{{ a.rsplit(',') | length }}",
      "{% set a = '\\n' * 120000000 %}{{ a.splitlines() | length }}",
      "{% set a = '\\n' * 120000000 %}{{ a | indent | length }}",
      "{% set a = 'a.' * 60000000 %}{{ [1] | map(attribute=a) | list }}",
      "{% set a = ',' * 120000000 %}{{ [1] | sort(attribute=a) }}",
      "{% set a = '\\x01' * 120000000 %}{{ a | tojson | length }}",
      "{% set a = '\\x01' * 120000000 %}{{ [a] | string | length }}",
      "{% set a = '<' * 120000000 %}{{ a | escape | length }}",
      "{% set a = 'é' * 60000000 %}{{ a | lower | length }}",
      "{% set a = 'a' * 120000000 %}{{ a | upper | length }}",
      "{% set a = 'é' * 60000000 %}{{ a.title() | length }}",
      "{% set a = 'é' * 60000000 %}{{ a | capitalize | length }}",
      "{% for i in range(100000) %}{% for j in range(1000) %}{% if 1.7e308 | round(22) %}{% endif %}{% "
      "endfor %}{% endfor %}",
      "{% set a = 'b' * 120000000 %}{{ 'a' | trim(a) | length }}{{ 'a'.rjust(9, a) }}",
      "{{ 2 ** 99999999999 }}", "{{ 3 ** 99 }}", std::string(5 << 20, 'a')};
  for (const std::string& source : hostile) {
    const Cost cost = cost_of(source);
    EXPECT_TRUE(ended(cost, End::refused)) << source.substr(0, 200) << ": status " << cost.status;
    expect_bounded(cost, source);
  }
}

// Work that is large and allowed: it is done in a time that grows with the lengths of its texts and not with
// their product.
TEST(HostileTemplate, EndsByATextOrAnErrorInBoundedTime) {
  const std::string sources[] = {
      "{{ ('a ' * 300000).rsplit(none, 299999) | length }}",
      "{{ ('a' * 3000000 ~ 'b') in 'a' * 6000000 }}",
      "{{ ('a' * 6000000).find('a' * 3000000 ~ 'b') }}",
      "{{ ('a' * 6000000).rfind('b' ~ 'a' * 3000000) }}",
      "{{ ('a' * 6000000).rindex('b' ~ 'a' * 3000000) }}",
      "{{ ('a' * 6000000).count('a' * 3000000 ~ 'b') }}",
      "{{ ('a' * 6000000).split('a' * 3000000 ~ 'b') | length }}",
      "{{ ('a' * 6000000).rsplit('b' ~ 'a' * 3000000) | length }}",
      "{{ ('a' * 6000000).partition('a' * 3000000 ~ 'b') | length }}",
      "{{ ('a' * 6000000).rpartition('b' ~ 'a' * 3000000) | length }}",
      "{{ ('a' * 6000000).replace('a' * 3000000 ~ 'b', '') | length }}",
      "{{ ('a' * 6000000) | replace('a' * 3000000 ~ 'b', '') | length }}",
      "{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') | length }}",
      "{{ ('a' * 1000000) | trim('é' * 1000000 ~ 'a') | length }}",
      "{% set a = 'a' * 15000000 %}{% set b = 'a' * 15000000 %}{% for i in range(20000) %}{% if a == b %}{% "
      "endif %}"
      "{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% set b = 'a' * 15000000 %}{% for i in range(20000) %}{% if a < b %}{% "
      "endif %}"
      "{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% set d = {a: 1} %}{% for i in range(20000) %}{% if d[a] %}{% endif %}{% "
      "endfor %}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if a.startswith(a) %}{% endif %}{% endfor "
      "%}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if a | length %}{% endif %}{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if a | int %}{% endif %}{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if a.islower() %}{% endif %}{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if a is lower %}{% endif %}{% endfor %}",
      "{% set a = 'a' * 15000000 %}{% for i in range(20000) %}{% if x[a] %}{% endif %}{% if {}[a] %}{% endif "
      "%}"
      "{% endfor %}",
      variables_of(60'000)};
  for (const std::string& source : sources) {
    const Cost cost = cost_of(source);
    EXPECT_TRUE(ended(cost, End::refused) || ended(cost, End::rendered))
        << source.substr(0, 200) << ": status " << cost.status;
    expect_bounded(cost, source);
  }
}

// Damaged templates of a usual form: each is rendered or refused, within its limits.
TEST(HostileTemplate, Fuzz) {
  const std::string good =
      "{%- if messages[0].role == 'system' %}{{ messages[0]['content'] | trim }}{% set rest = messages[1:] %}"
      "{% else %}{% set rest = messages %}{% endif %}{# a note #}\n{% for m in rest if m.role != 'x' %}"
      "{{ '<|' ~ m.role ~ '|>' + m.content.split('</think>')[-1].lstrip() }}{% if not loop.last %}, {% endif "
      "%}"
      "{%- endfor %}{% macro show(a, b=2) %}{{ a * b }}{% endmacro %}{{ show(3) }}{{ tools | "
      "tojson(indent=2) }}"
      "{% if add_generation_prompt is defined and add_generation_prompt %}{{ bos_token }}{% endif %}";
  const std::string variables =
      R"({"messages": [{"role": "system", "content": " be brief "}, {"role": "user", "content": "a</think> b"}],
          "tools": [{"name": "f", "n": 1.5}], "bos_token": "<s>", "add_generation_prompt": true})";
  PhiloxStream random(20261124);
  const auto damaged = [&] {
    std::string text = good;
    for (std::uint32_t changes = 1 + random.next_below(3); changes > 0 && !text.empty(); --changes) {
      const auto place = [&] { return random.next_below(static_cast<std::uint32_t>(text.size())); };
      switch (random.next_below(4)) {
        case 0:
          text[place()] = static_cast<char>(random.next_below(256));
          break;
        case 1:
          text.erase(place(), 1 + random.next_below(12));
          break;
        case 2:
          text.insert(place(), std::string(text, place(), 1 + random.next_below(30)));
          break;
        default:
          text.resize(random.next_below(10) == 0 ? place() : text.size());
          break;
      }
    }
    return text;
  };
  int rendered = 0, refused = 0;
  for (int round = 0, rounds = files::fuzz_count(3000); round < rounds; ++round) {
    try {
      Template::parse(damaged(), "t").render(variables, {.steps = 100'000, .bytes = std::int64_t{16} << 20});
      ++rendered;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(rendered, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace fovea::text
