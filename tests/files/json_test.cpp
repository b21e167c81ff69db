// JSON that is read in place: invalid texts, and the positions in their errors.
#include "files/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "files/json_scanner.h"
#include "fovea/core/error.h"

namespace fovea::files {
namespace {

std::string refusal(const std::string& text) {
  try {
    check_json_object("c.json", text, 4);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonScanner, SaysLineAndColumn) {
  EXPECT_EQ(refusal("{\"a\": [1, {\"b\": \"\\u00e9\\ud83d\\ude00\"}], \"c\": -1.5e-3, \"d\": null}\n"), "");
  EXPECT_EQ(refusal("{\n \"a\": 1,\n}"), "c.json (line 3, column 1): syntax error: expected a key, got '}'");
  EXPECT_EQ(refusal("{\n \"a\": 1\n \"b\": 2}"),
            "c.json (line 3, column 2): syntax error: expected ',' or '}', got '\"'");
  EXPECT_EQ(refusal("{\"a\": 1e999}"),
            "c.json (line 1, column 7): expected a number that is finite as a double, got 1e999");
  EXPECT_EQ(refusal("{\"a\": 1, \"a\": 2}"), "c.json (line 1, column 10): two values of 'a'");
  EXPECT_EQ(refusal("[1]"), "c.json (line 1, column 1): expected a JSON object, got an array");
  EXPECT_EQ(refusal("{\"a\": [[[[0]]]]}"), "c.json (line 1, column 10): arrays and objects nest too deep");
  EXPECT_EQ(refusal("{\"a\": \"x"),
            "c.json (line 1, column 9): syntax error: expected the '\"' that ends a string, got the end of "
            "the text");
}

// By RFC 8259, and UTF-8 by RFC 3629.
TEST(JsonScanner, RefusesInvalidJson) {
  for (const char* bad : {"",
                          "{",
                          "{}x",
                          "{,}",
                          "{\"a\"}",
                          "{\"a\":}",
                          "{a:1}",
                          "{\"a\":01}",
                          "{\"a\":+1}",
                          "{\"a\":1.}",
                          "{\"a\":.5}",
                          "{\"a\":1e}",
                          "{\"a\":-}",
                          "{\"a\":nan}",
                          "{\"a\":tru}",
                          "{\"a\":[1,]}",
                          "{\"a\":[,1]}",
                          "{\"a\":[1 2]}",
                          "{\"a\":\"\\x\"}",
                          "{\"a\":\"\\u12g4\"}",
                          "{\"a\":\"\\ud800\"}",
                          "{\"a\":\"\\ud800\\u0041\"}",
                          "{\"a\":\"\\udc00\"}",
                          "{\"a\":\"\t\"}",
                          "{\"a\":\"\xff\"}",
                          "{\"a\":\"\xc3\"}",
                          "{\"a\":\"\xc0\x80\"}",
                          "{\"a\":\"\xed\xa0\x80\"}",
                          "{\"a\":\"\xf4\x90\x80\x80\"}",
                          "{\"a\":\"\xe2\x82\"}",
                          "{\"a\":'b'}"}) {
    EXPECT_NE(refusal(bad), "") << bad;
  }
}

TEST(JsonScanner, ResolvesEscapesInPlace) {
  std::string text = R"( [ "a\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00z" , 18446744073709551615, 0 ] )";
  JsonScanner scanner("f", text, JsonScanner::Position::byte, 8);
  scanner.open_array();
  ASSERT_TRUE(scanner.next_element());
  EXPECT_EQ(scanner.string(), "a\"\\/\b\f\n\r\tAé€😀z");
  ASSERT_TRUE(scanner.next_element());
  EXPECT_EQ(scanner.number(), ~std::uint64_t{0});
  ASSERT_TRUE(scanner.next_element());
  EXPECT_EQ(scanner.number(), 0u);
  EXPECT_FALSE(scanner.next_element());
  scanner.finish();
}

TEST(Json, AWholeNumberIsNoOtherNumber) {
  const auto number = [](const char* text) { return whole_number(nlohmann::json::parse(text), -5, 7); };
  EXPECT_EQ(number("7"), 7);
  EXPECT_EQ(number("-5"), -5);
  for (const char* other : {"8", "-6", "1.0", "1e300", "-1e300", "18446744073709551615",
                            "9223372036854775808", "true", "\"1\"", "null", "[1]"})
    EXPECT_FALSE(number(other)) << other;
  EXPECT_EQ(whole_number(nlohmann::json::parse("9223372036854775807"), 0, INT64_MAX), INT64_MAX);
  EXPECT_FALSE(whole_number(nlohmann::json::parse("18446744073709551615"), INT64_MIN, INT64_MAX));
}

}  // namespace
}  // namespace fovea::files
