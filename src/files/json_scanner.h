// Reads JSON of a shape that its caller knows, in place. The caller asks for the next expected element, and
// every string is a view into the text. So it needs no memory of its own and no recursion, whatever the text
// contains, and every error has its position. Rejected: a parser that builds a document costs 75 times the
// size of a text of '[' alone. One that calls back with each string still holds that string three times while
// it grows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fovea::files {

class JsonScanner {
 public:
  /// Whether an object may have a key twice.
  enum class Repeats : std::uint8_t { allowed, refused };
  /// How errors give their position: as the byte in the file, or as line and column (in bytes, from 1).
  enum class Position : std::uint8_t { byte, line };

  /// `text` is the JSON, which escapes are resolved in, and must outlive the scanner and all views it gives.
  /// `begin` is its place in `file`, in bytes.
  JsonScanner(std::string file, std::span<char> text, Position position, std::int64_t begin = 0)
      : file_(std::move(file)), text_(text), position_(position), begin_(begin) {}

  /// The line of the file at which the text begins, for Position::line.
  void begin_at_line(std::int64_t line) { line_ = line; }

  /// All of these throw FileError where something else stands there. `what` is for its text, "a shape".
  void open_object(std::string_view what = "an object") { open('{', what); }
  void open_array(std::string_view what = "an array") { open('[', what); }
  /// Reads the key and the colon of the object's next member; false, and the object is closed, if there is
  /// none.
  bool next_member(std::string_view& key);
  /// Whether the array has another element; if not, it is closed.
  bool next_element() { return next(']'); }
  /// Valid UTF-8.
  std::string_view string(std::string_view what = "a string");
  /// A whole number from 0 to 2^64 - 1, without a fraction or an exponent.
  std::uint64_t number(std::string_view what = "a whole number of at least 0");
  /// A finite number.
  double real(std::string_view what = "a number");
  /// Whether an array comes next.
  bool at_array();
  /// Any one value, whose arrays and objects nest at most `depth` deep and whose numbers are finite.
  void skip_value(int depth, Repeats repeats = Repeats::allowed);
  /// The same, as the text that stands there: as it was, if no string in it has escapes.
  std::string_view raw_value(int depth);
  /// Nothing but blanks may follow.
  void finish();

  /// Later errors begin with `what` 'name': . Both must outlive the scanner or the next call.
  void set_context(std::string_view what, std::string_view name) { context_ = what, name_ = name; }
  /// Refuses what was read last, with its position.
  [[noreturn]] void fail(const std::string& reason) const;
  /// Where the value that was read last begins, in the text.
  std::size_t offset() const noexcept { return token_; }
  /// Where it ends.
  std::size_t end() const noexcept { return at_; }

 private:
  void skip_blanks();
  bool take(char c);
  void open(char bracket, std::string_view what);
  bool next(char closing);
  std::string_view take_number(std::string_view what);
  double checked_number(std::string_view what);
  void skip_literal();
  char* resolve_escape(char* to);
  char16_t four_digits();
  [[noreturn]] void refuse(std::string_view expected);
  [[noreturn]] void syntax_error(std::string_view expected);

  std::string file_;
  std::span<char> text_;
  Position position_;
  std::int64_t begin_;
  std::size_t at_ = 0, token_ = 0;
  std::int64_t line_ = 1;
  std::size_t line_begin_ = 0;
  bool fresh_ = false;  // just after a bracket that opens: no comma yet
  std::string_view context_, name_;
};

/// Throws FileError with line and column unless `text` is one JSON object, nested at most `depth` deep,
/// without repeated names at its outermost level. Such a text is safe for a parser that builds a document.
/// That parser does not say where a number overflows, does not limit the depth, and repeats the last token in
/// its errors, however long.
void check_json_object(const std::string& file, std::string text, int depth);

}  // namespace fovea::files
