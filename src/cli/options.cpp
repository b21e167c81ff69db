#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cli/nearest_name.h"
#include "core/excerpt.h"

namespace fovea::cli {

Check::Check(const CLI::Validator& validator)
    : validator_(std::make_shared<const CLI::Validator>(validator)) {}
Check::Check(std::function<std::string(const std::string&)> problem)
    : Check(CLI::Validator([problem](std::string& text) { return problem(text); }, "")) {}

namespace {

std::string expected_but_got(const std::string& expected, const std::string& got) {
  return "expected " + expected + ", got " + (got.empty() ? "an empty text" : "'" + got + "'");
}

// A check of a number: CLI11's own print the largest double where a range has no end. What is no number of
// the option's type has been refused before.
template <class T>
Check number_check(const std::string& expected, const std::string& shown, std::function<bool(T)> holds) {
  return Check(CLI::Validator(
      [=](std::string& text) {
        T value{};
        const bool read = CLI::detail::lexical_cast(text, value);
        return read && holds(value) ? std::string() : expected_but_got(expected, text);
      },
      shown));
}

template <class T>
Check range_check(T lowest, T highest, const char* type) {
  std::ostringstream ends, shown;
  ends << lowest << " to " << highest;
  shown << type << " in [" << lowest << " - " << highest << "]";
  return number_check<T>(ends.str(), shown.str(),
                         [=](T value) { return lowest <= value && value <= highest; });
}

// What a value of the type is called, and whether the text is one. CLI11 takes -1 for 2^64 - 1, the largest
// number for one that is too large, and 010 for 8.
template <class T>
std::string type_problem(const std::string& text) {
  T value{};
  const bool read = !text.empty() && CLI::detail::lexical_cast(text, value);
  if constexpr (std::is_floating_point_v<T>) {
    return read ? std::string() : expected_but_got("a number", text);
  } else if constexpr (std::is_integral_v<T>) {
    std::string_view number = text;
    if (number.starts_with('+')) number.remove_prefix(1);
    const std::string_view digits = number.substr(number.starts_with('-') ? 1 : 0);
    const bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    std::string expected = "a whole number";
    if (std::is_unsigned_v<T> && text.find('-') != std::string::npos)
      expected += " of at least 0";
    else if (plain && digits.size() > 1 && digits.starts_with('0'))
      expected += " without leading zeros";
    else if (plain && std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc())
      expected += " of " + std::to_string(8 * sizeof(T)) + " bits";
    else if (plain)
      return {};
    return expected_but_got(expected, text);
  }
  return read ? std::string() : expected_but_got("another value", text);
}

template <class T>
struct Element {
  using Type = T;
};
template <class T>
struct Element<std::vector<T>> {
  using Type = T;
};
template <class T>
struct Element<std::optional<T>> {
  using Type = T;
};

}  // namespace

Check in_range(int lowest, int highest) {
  return range_check(lowest, highest, "INT");
}
Check in_range(std::int64_t lowest, std::int64_t highest) {
  return range_check(lowest, highest, "INT");
}
Check in_range(double lowest, double highest) {
  return range_check(lowest, highest, "FLOAT");
}
Check one_of(const std::vector<std::string>& values) {
  const std::string all = CLI::detail::join(values, ", ");
  return Check(CLI::Validator(
      [=](std::string& text) {
        return std::ranges::find(values, text) != values.end() ? std::string()
                                                               : expected_but_got("one of " + all, text);
      },
      "{" + CLI::detail::join(values, ",") + "}"));
}
Check non_negative() {
  return number_check<double>("a number of at least 0", "NONNEGATIVE",
                              [](double value) { return value >= 0.0; });
}
Check positive() {
  return number_check<double>("a number above 0", "POSITIVE", [](double value) { return value > 0.0; });
}
Check finite() {
  return number_check<double>("a finite number", "", [](double value) { return std::isfinite(value); });
}

Check dropout_rate() {
  return number_check<double>("0, or a rate above 1/512, because smaller ones drop nothing", "",
                              [](double rate) { return !(rate > 0.0 && rate <= 1.0 / 512.0); });
}
Check file_name() {
  return Check([](const std::string& text) {
    return text.empty() ? expected_but_got("the name of a file", text) : std::string();
  });
}

Option Option::required() {
  option_->required();
  return *this;
}
Option Option::check(const Check& check) {
  option_->check(check.validator());
  return *this;
}
Option Option::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}
Option Option::expected(int least, int most) {
  option_->expected(least, most);
  return *this;
}
Option Option::one_argument_each() {
  option_->allow_extra_args(false);
  return *this;
}
Option Option::take_last() {
  option_->take_last();
  return *this;
}
Option Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}
Option Option::type_name(const std::string& text) {
  option_->type_name(text);
  return *this;
}
Option Option::option_text(const std::string& text) {
  option_->option_text(text);
  return *this;
}
Option Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}
Option Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}
bool Option::given() const {
  return option_->count() > 0;
}

Command Command::add_subcommand(const std::string& name, const std::string& about) {
  return Command(app_->add_subcommand(name, about));
}
void Command::group(const std::string& heading) {
  app_->group(heading);
}
void Command::footer(const std::string& text) {
  app_->footer(text);
}
void Command::require_subcommand() {
  app_->require_subcommand(1);
}
void Command::callback(std::function<void()> run) {
  app_->callback(std::move(run));
}
void Command::when_read(std::function<void()> run) {
  app_->parse_complete_callback(std::move(run));
}

template <OptionValue T>
Option Command::add_option(const std::string& names, T& to, const std::string& help) {
  Option option(app_->add_option(names, to, help));
  using Value = typename Element<T>::Type;
  if constexpr (std::is_arithmetic_v<Value>) option.check(Check(type_problem<Value>));
  return option;
}
template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&);

Option Command::add_option_function(const std::string& names,
                                    std::function<void(const std::vector<std::string>&)> take,
                                    const std::string& help) {
  return Option(app_->add_option_function<std::vector<std::string>>(names, take, help));
}
Option Command::add_named(const std::string& names, std::function<void(std::size_t)> take,
                          const std::vector<std::string>& texts, const std::string& now,
                          const std::string& help) {
  const auto take_text = [take, texts](const std::string& text) {
    take(static_cast<std::size_t>(std::find(texts.begin(), texts.end(), text) - texts.begin()));
  };
  return Option(app_->add_option_function<std::string>(names, take_text, help)
                    ->check(one_of(texts).validator())
                    ->default_str(now));
}
Option Command::add_flag(const std::string& names, bool& to, const std::string& help) {
  return Option(app_->add_flag(names, to, help)->disable_flag_override());
}
Option Command::add_flag(const std::string& names, std::function<void()> when_given,
                         const std::string& help) {
  return Option(app_->add_flag_callback(names, std::move(when_given), help)->disable_flag_override());
}

Command Command::subcommand(const std::string& name) const {
  return Command(app_->get_subcommand(name));
}
bool Command::given(const std::string& name) const {
  return app_->get_option(name)->count() > 0;
}
std::vector<std::pair<std::string, std::string>> Command::given_values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    for (const std::string& value : option->results()) values.emplace_back(option->get_name(), value);
  }
  return values;
}

namespace {

constexpr char kMark = '\x01';

std::set<const CLI::App*>& commands_of_texts() {
  static std::set<const CLI::App*> commands;
  return commands;
}

// The subcommand of that name, or the command itself if it has none.
CLI::App* below(CLI::App& command, const std::string& name) {
  const std::vector<CLI::App*> found =
      command.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  return found.empty() ? &command : found.front();
}

// The arguments as CLI11 shall read them: it takes one between brackets for a list. Those of a command of
// texts are marked, and its options take the mark off.
std::vector<std::string> marked(CLI::App& app, std::vector<std::string> arguments) {
  CLI::App* command = &app;
  auto argument = arguments.begin();
  for (; argument != arguments.end() && !commands_of_texts().contains(command); ++argument) {
    command = below(*command, *argument);
  }
  if (!commands_of_texts().contains(command)) return arguments;
  const CLI::Validator unmark(
      [](std::string& text) {
        if (text.starts_with(kMark)) text.erase(0, 1);
        return std::string();
      },
      "");
  for (CLI::Option* option : command->get_options()) option->transform(unmark);
  for (; argument != arguments.end(); ++argument) {
    if (argument->starts_with(kMark) || (argument->starts_with('[') && argument->ends_with(']')))
      argument->insert(0, 1, kMark);
  }
  return arguments;
}

// CLI11 takes the argument behind "--name=" for the value, whatever it is. The value is the empty text.
std::vector<std::string> with_empty_values(CLI::App& app, const std::vector<std::string>& arguments) {
  CLI::App* command = &app;
  std::vector<std::string> read;
  bool is_value = false, only_values = false;
  for (const std::string& argument : arguments) {
    read.push_back(argument);
    if (std::exchange(is_value, false)) continue;
    only_values |= argument == "--";
    if (only_values) continue;
    command = below(*command, argument);
    const std::string name = argument.substr(0, argument.find('='));
    const CLI::Option* option = name.starts_with('-') ? command->get_option_no_throw(name) : nullptr;
    if (!option || option->get_items_expected_min() == 0) continue;
    is_value = name == argument;
    if (name.starts_with("--") && argument.size() == name.size() + 1) {
      read.back() = name;
      read.emplace_back();
    }
  }
  return read;
}

// The command that was asked for, as deep as it was understood.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

std::vector<std::string> commands_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(below->get_name());
  return names;
}

// As a user writes it: "fovea score".
std::string full_name(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  return above ? full_name(*above) + " " + command.get_name() : "fovea";
}

// Ends an error about a name that is not among the command's.
std::string listed_by(const CLI::App& command) {
  return "`" + full_name(command) + " --help` lists them";
}

// What is wrong with a word that the command does not know.
std::string unknown_word_problem(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> below = commands_below(command);
  std::vector<std::string> names = below;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string bare = word.substr(0, word.find('='));
  const bool known = std::ranges::find(names, bare) != names.end();
  const std::string shown = fovea::excerpt(known ? word : bare);
  if (known && (word == bare || bare.starts_with('-')))
    return "'" + shown + "': it belongs behind '" + command.get_name() + "'";
  for (const CLI::App* above = command.get_parent(); above; above = above->get_parent()) {
    if (bare.starts_with("--") && above->get_option_no_throw(bare))
      return "'" + shown + "': it belongs before '" + command.get_name() + "'";
  }
  const std::string meant = nearest_name(names, bare);
  const std::string hint = meant.empty() ? listed_by(command) : "did you mean " + meant + "?";
  if (word.starts_with('-')) return shown + ": there is no such option; " + hint;
  return "'" + shown + "'" + (below.empty() ? ": expected an option; " : " is no command; ") + hint;
}

// A line for each unknown option, or for the first unknown word.
std::string unknown_words_problem(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  std::string lines;
  for (const std::string& word : app.remaining(true)) {
    const bool option = word.starts_with('-');
    if (!option && !lines.empty()) continue;  // perhaps the value of the unknown option
    lines += unknown_word_problem(command, word) + "\n";
    if (!option) break;  // what follows was perhaps meant for this command
  }
  return lines;
}

// What is wrong with a command that needs one of those below it.
std::string missing_command_problem(const CLI::App& command) {
  const std::string expected = full_name(command) + ": expected ";
  if (!command.get_parent()) return expected + "a command; " + listed_by(command) + "\n";
  std::vector<std::string> names = commands_below(command);
  const std::string last = names.back();
  names.pop_back();
  return expected + CLI::detail::join(names, ", ") + " or " + last + "\n";
}

// What is wrong with the options, in the form of the other errors: CLI11 has words of its own for an option
// without its value ("--seed: 1 required UINT missing"), for one that came twice ("--model: At Most 1
// required but received 2") and for a flag with a value.
std::string mismatch_problem(const CLI::ArgumentMismatch& error, const std::string& message) {
  const std::string what = error.what(), name = what.substr(0, what.find(':'));
  std::string problem;
  if (what.ends_with(" missing") || what.find("At least") != std::string::npos)
    problem = name + ": expected a value, got none\n";
  else if (const std::size_t at = what.find("At Most 1 required but received "); at != std::string::npos)
    problem = name + ": expected once, got it " + what.substr(what.rfind(' ') + 1) + " times\n";
  else if (const std::size_t at = what.find(" was given a disallowed flag override"); at != std::string::npos)
    problem = "--" + what.substr(0, at) + ": expected no value, got one\n";
  const std::size_t line = message.find('\n');
  return problem.empty() || line == std::string::npos ? message : problem + message.substr(line + 1);
}

// `message` is what CLI11 says of the error.
std::string problem_of(const CLI::App& app, const CLI::ParseError& error, const std::string& message) {
  const bool incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (incomplete || dynamic_cast<const CLI::ExtrasError*>(&error)) {
    // What is required may be missing because it is misspelt.
    const std::string problem = unknown_words_problem(app);
    if (!problem.empty()) return problem;
  }
  const CLI::App& command = innermost(app);
  if (incomplete && command.get_require_subcommand_min() > 0) return missing_command_problem(command);
  const auto* mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&error);
  return mismatch ? mismatch_problem(*mismatch, message) : message;
}

// An option by the name that was written, where it has several.
std::string with_written_name(const CLI::App& command, const std::vector<std::string>& arguments,
                              std::string problem) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (!problem.starts_with(name + ":")) continue;
    const auto written = [&](const std::string& other) {
      return std::ranges::any_of(arguments, [&](const std::string& argument) {
        return argument == other || argument.starts_with(other + "=");
      });
    };
    if (written(name)) return problem;
    for (const std::string& other : option->get_lnames()) {
      if (written("--" + other)) return problem.replace(0, name.size(), "--" + other);
    }
  }
  return problem;
}

// `text` in lines of at most `width` bytes, cut at blanks.
std::string wrapped(const std::string& text, std::size_t width) {
  std::string result;
  std::size_t begin = 0;  // of a line
  while (text.size() - begin > width) {
    const std::size_t line_break = text.find('\n', begin);
    std::size_t end = std::min(line_break, text.rfind(' ', begin + width));
    if (end == std::string::npos || end <= begin) end = text.find_first_of(" \n", begin);  // one long word
    if (end == std::string::npos) break;
    result += text.substr(begin, end - begin) + '\n';
    begin = end + 1;
  }
  return result + text.substr(begin);
}

// Help in lines that fit into a window of 110 columns.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(Formatter::make_option_desc(option), columns - get_column_width());
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(Formatter::make_description(app), columns);
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrapped(Formatter::make_footer(app), columns);
  }

 private:
  static constexpr std::size_t columns = 110;
};

}  // namespace

void Command::take_brackets_for_text() {
  commands_of_texts().insert(app_);
}

CommandLine::CommandLine(const std::string& about, const std::string& version)
    : app_(std::make_unique<CLI::App>(about)) {
  app_->formatter(std::make_shared<WrappedHelp>());
  app_->set_version_flag("--version", version)->disable_flag_override();
  app_->require_subcommand(1);
  app_->option_defaults()->always_capture_default();
}
CommandLine::~CommandLine() = default;

std::optional<int> CommandLine::run(std::vector<std::string> arguments) {
  arguments = marked(*app_, with_empty_values(*app_, arguments));
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  try {
    app_->parse(static_cast<int>(words.size()), words.data());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream message;
    if (app_->exit(error, std::cout, message) == 0) return 0;  // --help, --version
    // The message repeats the value, and an argument may be of any length.
    const std::string problem =
        with_written_name(innermost(*app_), arguments, problem_of(*app_, error, message.str()));
    std::fprintf(stderr, "%s", excerpt_words(printable(problem, LineBreaks::kept), 200).c_str());
    return 2;
  }
}

}  // namespace fovea::cli
