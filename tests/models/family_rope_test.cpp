// Rotary positions of families whose frequencies depend on the length of a text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/random_family.h"
#include "models/tiny_families.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;

class FamilyRope : public ::testing::Test {
 protected:
  FamilyRope() : folder(fs::temp_directory_path() / ("fovea-rope-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
  }
  ~FamilyRope() override { fs::remove_all(folder); }
  fs::path folder;
};

json with_rope(std::string_view type, const json& rope) {
  json config = tiny_config(type);
  config["rope_parameters"] = rope;
  return config;
}

// Four elements of a head, so two pairs.
json longrope() {
  return {{"rope_type", "longrope"},
          {"original_max_position_embeddings", 6},
          {"short_factor", {1.0, 1.5}},
          {"long_factor", {2.0, 9.0}}};
}

TEST_F(FamilyRope, ReadsLongRope) {
  const auto read = [](const json& config) {
    EXPECT_EQ(refusal(config), "");
    return std::get<LongRopeScaling>(read_family(config.dump()).config.rope.scaling);
  };
  const LongRopeScaling plain = read(with_rope("llama", longrope()));
  EXPECT_EQ(plain.original_max_positions, 6);
  EXPECT_EQ(plain.short_factors, (std::vector{1.0, 1.5}));
  EXPECT_EQ(plain.long_factors, (std::vector{2.0, 9.0}));
  EXPECT_DOUBLE_EQ(plain.attention_factor, std::sqrt(1.0 + std::log(18.0 / 6.0) / std::log(6.0)));
  json rope = longrope();
  rope["factor"] = 5.0;
  EXPECT_DOUBLE_EQ(read(with_rope("llama", rope)).attention_factor,
                   std::sqrt(1.0 + std::log(5.0) / std::log(6.0)));
  rope["factor"] = 0.5;
  EXPECT_EQ(read(with_rope("llama", rope)).attention_factor, 1.0);
  rope["attention_factor"] = 0.75;
  EXPECT_EQ(read(with_rope("llama", rope)).attention_factor, 0.75);
}

// Its own key counts, also where it is absent, and two older names mean the same.
TEST_F(FamilyRope, ReadsPhi3) {
  for (const char* name : {"longrope", "su", "yarn"}) {
    json config = tiny_config("phi3");
    config["rope_scaling"] = {{"type", name}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 9.0}}};
    EXPECT_EQ(refusal(config), "");
    const auto scaling = [&] {
      return std::get<LongRopeScaling>(read_family(config.dump()).config.rope.scaling);
    };
    EXPECT_EQ(scaling().original_max_positions, 4096);
    EXPECT_EQ(scaling().attention_factor, 1.0);  // 18 positions are fewer
    config["original_max_position_embeddings"] = 6;
    EXPECT_EQ(scaling().original_max_positions, 6);
    EXPECT_GT(scaling().attention_factor, 1.0);
  }
  EXPECT_NE(
      refusal(with_rope("phi3", {{"rope_type", "linear"}, {"factor", 2.0}})).find("rope_type: expected"),
      std::string::npos);
}

TEST_F(FamilyRope, NamesWhatIsWrong) {
  const auto says = [](const char* key, const json& value, const std::string& words) {
    json rope = longrope();
    rope[key] = value;
    const std::string text = refusal(with_rope("llama", rope));
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  says("short_factor", nullptr, "rope_parameters.short_factor: expected a list");
  says("long_factor", {1.0}, "rope_parameters: expected long_factors: 2 numbers");
  says("long_factor", {1.0, -1.0}, "rope_parameters.long_factor: expected a number above 0");
  says("long_factor", {1.0, "x"}, "rope_parameters.long_factor: expected a number above 0");
  says("factor", "x", "rope_parameters.factor: expected");
  says("beta_fast", 2.0, "rope_parameters.beta_fast: expected");
  says("original_max_position_embeddings", 0, "rope_parameters.original_max_position_embeddings: expected");
}

std::vector<std::int32_t> ids_of(std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>(3 + i * 5 % 8));
  return ids;
}

std::vector<json> kinds() {
  json dynamic = with_rope("llama", {{"rope_type", "dynamic"}, {"factor", 3.0}});
  dynamic["max_position_embeddings"] = 6;
  return {dynamic, with_rope("llama", longrope())};
}

// Texts of all lengths side by side have the rows that each has alone. Products of more rows round otherwise.
TEST_F(FamilyRope, TextsOfOtherLengthsChangeNothing) {
  for (json config : kinds()) {
    config["architectures"] = {"LlamaForSequenceClassification"};
    save_random_model(folder.string(), config.dump());
    const TextEncoder encoder = ModelFolder(folder).text_encoder();
    std::vector<std::vector<std::int32_t>> texts;
    for (const std::int64_t length : {4, 9, 6, 7, 13, 9, 18}) texts.push_back(ids_of(length));
    nn::Context context;
    const Tensor all = encoder.hidden(context, texts).value();
    std::int64_t begin = 0;
    for (const std::vector<std::int32_t>& text : texts) {
      const Tensor one = encoder.hidden(context, {&text, 1}).value();
      for (std::int64_t i = 0; i < one.count(); ++i)
        ASSERT_NEAR(all.data<float>()[begin + i], one.data<float>()[i], 1e-5) << text.size();
      begin += one.count();
    }
    EXPECT_EQ(begin, all.count());
  }
}

// Rows that are kept were computed with the frequencies of a shorter text.
TEST_F(FamilyRope, KeptTextsEndWhereFrequenciesChange) {
  for (const json& config : kinds()) {
    save_random_model(folder.string(), config.dump());
    LanguageModel model = ModelFolder(folder).language_model();
    EXPECT_EQ(model.longest(), 18);
    EXPECT_EQ(model.longest_kept(), 6);
    const std::vector<std::int32_t> prompt = ids_of(4);
    SampleOptions options{.temperature = 0.0, .length = 3};
    const Generated kept = generate(model, prompt, options);
    options.length = 10;
    try {
      (void)generate(model, prompt, options);
      ADD_FAILURE() << "goes on";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "options.length");
      EXPECT_NE(std::string(error.what()).find("other rotary frequencies"), std::string::npos)
          << error.what();
    }
    options.reuse = Reuse::off;
    const Generated anew = generate(model, prompt, options);
    ASSERT_EQ(anew.ids.size(), 10U);
    EXPECT_TRUE(std::equal(kept.ids.begin(), kept.ids.end(), anew.ids.begin()));
    // Texts side by side are padded, and the length of each would not be seen.
    nn::Context context;
    const std::vector<std::vector<std::int32_t>> texts{ids_of(18), ids_of(4)};
    EXPECT_NO_THROW(model.hidden(context, pad(std::span(texts).first(1))));
    EXPECT_THROW(model.hidden(context, pad(texts)), InvalidArgument);
    EXPECT_THROW(model.loss(context, pad(texts)), InvalidArgument);
  }
}

// A loss of texts of one length is that of each alone.
TEST_F(FamilyRope, LossesOfLongTextsOfOneLengthAddUp) {
  for (const json& config : kinds()) {
    save_random_model(folder.string(), config.dump());
    LanguageModel model = ModelFolder(folder).language_model();
    std::vector<std::vector<std::int32_t>> texts{ids_of(15), ids_of(15)};
    std::reverse(texts[1].begin(), texts[1].end());
    nn::Context context;
    autograd::CrossEntropyStats together, alone;
    model.loss(context, pad(texts), {}, &together);
    for (const std::vector<std::int32_t>& text : texts) {
      autograd::CrossEntropyStats one;
      model.loss(context, pad({&text, 1}), {}, &one);
      alone += one;
    }
    EXPECT_NEAR(together.log_likelihood, alone.log_likelihood, 1e-5 * std::abs(alone.log_likelihood));
  }
}

}  // namespace
}  // namespace fovea::models
