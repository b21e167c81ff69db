#include "text/written_ids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fovea::text {
namespace {

// Ids that stand for bytes, decoded as UTF-8 with U+FFFD for what is none.
class Bytes {
 public:
  explicit Bytes(std::vector<std::string> of_ids) : of_ids_(std::move(of_ids)) {
    for (std::size_t i = 0; i < of_ids_.size(); ++i) ids_.push_back(static_cast<std::int32_t>(i));
  }
  // "a|b" of ids that add a and b; "+" stands before the text of an id that goes on with a character.
  std::string added() const {
    std::string all;
    for (const AddedText& one :
         added_texts(ids_, [&](std::span<const std::int32_t> ids) { return decoded(ids); }))
      all += (all.empty() ? "" : "|") + std::string(one.goes_on ? "+" : "") + one.text;
    return all;
  }

 private:
  // One U+FFFD for each byte that begins no whole character.
  std::string decoded(std::span<const std::int32_t> ids) const {
    std::string bytes, text;
    for (const std::int32_t id : ids) bytes += of_ids_[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < bytes.size();) {
      const auto first = static_cast<unsigned char>(bytes[i]);
      const std::size_t size = first < 0x80    ? 1
                               : first >= 0xF0 ? 4
                               : first >= 0xE0 ? 3
                               : first >= 0xC0 ? 2
                                               : 0;
      const bool whole = size > 0 && i + size <= bytes.size() &&
                         std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     bytes.begin() + static_cast<std::ptrdiff_t>(i + size),
                                     [](char c) { return (c & 0xC0) == 0x80; });
      text += whole ? bytes.substr(i, size) : "\xEF\xBF\xBD";
      i += whole ? size : 1;
    }
    return text;
  }

  std::vector<std::string> of_ids_;
  std::vector<std::int32_t> ids_;
};

TEST(WrittenIds, AreWhatEachIdAdds) {
  EXPECT_EQ(Bytes({"a", " b", "", "c"}).added(), "a| b||c");
  EXPECT_EQ(Bytes(std::vector<std::string>{}).added(), "");
}

TEST(WrittenIds, ACharacterIsShownByTheIdOfItsFirstByte) {
  EXPECT_EQ(Bytes({"a", "\xF0\x9F\x98", "\x80", "b"}).added(), "a|😀|+|b");
  EXPECT_EQ(Bytes({"\xE4\xB8", "\xAD"}).added(), "中|+");
  EXPECT_EQ(Bytes({"\xF0", "\x9F", "\x98", "\x80"}).added(), "😀|+|+|+");
  // An id that ends a character and begins the next text shows both with the character.
  EXPECT_EQ(Bytes({"\xC3", "\xA9t", "e"}).added(), "ét|+|e");
}

TEST(WrittenIds, BytesThatNothingMakesWholeStayReplaced) {
  EXPECT_EQ(Bytes({"a", "\xE4\xB8"}).added(), "a|\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Bytes({"\xE4", "b", "c"}).added(), "\xEF\xBF\xBD|b|c");
}

TEST(WrittenIds, TheEndOfATextIsFinishedWithoutReplacedBytes) {
  EXPECT_EQ(finished_size("ab\xEF\xBF\xBD\xEF\xBF\xBD"), 2u);
  EXPECT_EQ(finished_size("\xEF\xBF\xBD"
                          "ab"),
            5u);
  EXPECT_EQ(finished_size(""), 0u);
}

}  // namespace
}  // namespace fovea::text
