// The command line: commands, their options and what values may be. CLI11 does the work, in options.cpp
// alone: its templates took about 5 of the 9 CPU seconds that a file of the command needed to compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace fovea::cli {

/// What a value must be. The command's help repeats it, and another value is refused.
class Check {
 public:
  explicit Check(const CLI::Validator& validator);
  /// `problem` takes the text of a value and returns what is wrong with it, or nothing.
  explicit Check(std::function<std::string(const std::string&)> problem);
  const CLI::Validator& validator() const { return *validator_; }

 private:
  std::shared_ptr<const CLI::Validator> validator_;
};

/// Both ends belong to a range.
Check in_range(int lowest, int highest);
Check in_range(std::int64_t lowest, std::int64_t highest);
Check in_range(double lowest, double highest);
Check one_of(const std::vector<std::string>& values);
Check non_negative();
Check positive();
/// Finite numbers only: nan and inf would pass any range check.
Check finite();
/// A rate of dropout that is not rounded to 0, or 0 itself. The engine rounds rates to multiples of 1/256.
Check dropout_rate();
/// Not the empty text, which commands would take for an option that was not given.
Check file_name();

/// A handle of an option, which its command owns. Each function returns the handle.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option check(const Check& check);
  /// The values of a list may stand in one argument with this character between them.
  Option delimiter(char between);
  /// How many values a list has.
  Option expected(int least, int most);
  /// Each occurrence of the option takes one argument, so that those behind it are not taken for values.
  Option one_argument_each();
  /// Of several values the last counts.
  Option take_last();
  Option excludes(Option other);
  /// What the help shows: in place of the type, of the type with its default and checks, and of the default.
  Option type_name(const std::string& text);
  Option option_text(const std::string& text);
  Option default_text(const std::string& text);
  /// The heading of the help that it stands under.
  Option group(const std::string& name);

  /// Whether the arguments had it. Before they are read: false.
  bool given() const;

 private:
  CLI::Option* option_;
};

template <class T, class... Others>
concept IsAnyOf = (std::same_as<T, Others> || ...);

/// What an option may write to. options.cpp compiles add_option for each of them, so a type more is a line
/// there too.
template <class T>
concept OptionValue =
    IsAnyOf<T, std::string, int, std::int64_t, std::uint64_t, double, std::vector<std::string>,
            std::vector<int>, std::vector<std::int64_t>, std::optional<std::string>, std::optional<int>,
            std::optional<std::int64_t>, std::optional<std::uint64_t>, std::optional<double>>;

/// A handle of a command or of one of its subcommands. What options write to has to live until the command
/// has run.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// `about` is a short line: the help of the command above repeats it.
  Command add_subcommand(const std::string& name, const std::string& about);
  /// The heading that the command stands under in the help of the command above.
  void group(const std::string& heading);
  /// What the command's own help says below its options.
  void footer(const std::string& text);
  void require_subcommand();
  /// Runs when all arguments have been read.
  void callback(std::function<void()> run);
  /// Runs between the reading of the arguments and the callback.
  void when_read(std::function<void()> run);

  /// `names`: "--name", "--name,-n", or "name" of an argument without a flag. The help shows the value that
  /// `to` has now.
  template <OptionValue T>
  Option add_option(const std::string& names, T& to, const std::string& help = "");
  /// Calls `take` with all values.
  Option add_option_function(const std::string& names,
                             std::function<void(const std::vector<std::string>&)> take,
                             const std::string& help = "");
  /// One of the names of `choices` sets `to` to what stands beside it.
  template <class T, class To>
  Option add_choice(const std::string& names, To& to, std::vector<std::pair<std::string, T>> choices,
                    const std::string& help = "") {
    std::vector<std::string> texts;
    std::string now;
    for (const auto& [text, value] : choices) {
      texts.push_back(text);
      if (to == value) now = text;
    }
    const auto take = [&to, choices = std::move(choices)](std::size_t n) { to = choices[n].second; };
    return add_named(names, take, texts, now, help);
  }
  Option add_flag(const std::string& names, bool& to, const std::string& help = "");
  Option add_flag(const std::string& names, std::function<void()> when_given, const std::string& help = "");

  /// An argument between brackets, such as "[MASK] or [MASK]", is a text; for other commands it is a list.
  void take_brackets_for_text();

  Command subcommand(const std::string& name) const;
  /// Whether the arguments had the option, which the command must have.
  bool given(const std::string& name) const;
  /// The options that the arguments had, each with one of its values.
  std::vector<std::pair<std::string, std::string>> given_values() const;

 private:
  Option add_named(const std::string& names, std::function<void(std::size_t)> take,
                   const std::vector<std::string>& texts, const std::string& now, const std::string& help);

  CLI::App* app_;
};

/// The command line of a program.
class CommandLine {
 public:
  CommandLine(const std::string& about, const std::string& version);
  ~CommandLine();
  Command command() { return Command(app_.get()); }
  /// Reads the arguments, of which the first is the program's name, and runs the command that they name. The
  /// result is the exit status where no command has run. It is 0 after the help or the version, which go to
  /// standard output. It is 2 after an error on standard error, which names the option or command that was
  /// perhaps meant. What a command throws passes through. To be called once.
  std::optional<int> run(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace fovea::cli
