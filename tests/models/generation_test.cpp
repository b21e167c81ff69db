// What config.json and generation_config.json say about the texts of a folder, where they say different
// things.
#include <gtest/gtest.h>

#include "files/scratch.h"
#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"

namespace fovea::models {
namespace {

class Generation : public files::ScratchFolder {
 protected:
  // "" for no generation_config.json.
  ModelFolder folder(const std::string& config, const std::string& generation) {
    const std::string name = std::to_string(number_++);
    write(name + "/config.json", config);
    if (!generation.empty()) write(name + "/generation_config.json", generation);
    return ModelFolder(path(name));
  }

 private:
  int number_ = 0;
};

const std::string translator = R"("model_type": "bart", "eos_token_id": 2, "decoder_start_token_id": 3,)"
                               R"( "max_position_embeddings": 40)";

TEST_F(Generation, ATaskCountsBeforeTheOthers) {
  const std::string tasks =
      R"("task_specific_params": {"summarization": {"max_length": 20, "max_new_tokens": null}, "empty": {}})";
  const ModelFolder both = folder("{" + translator + ", " + tasks + "}", R"({"max_new_tokens": 7})");
  EXPECT_EQ(both.translator_beams(both.generation()).length_of(9), 7);
  // It counts the id that the decoder reads first.
  EXPECT_EQ(both.translator_beams(both.generation_for("summarization")).length_of(9), 19);
  EXPECT_EQ(both.translator_beams(both.generation_for("empty")).length_of(9), 7);
  EXPECT_THROW(both.generation_for("translation"), FileError);
}

TEST_F(Generation, OldFoldersHaveRulesInTheirConfig) {
  const ModelFolder old = folder("{" + translator + R"(, "repetition_penalty": 1.5, "do_sample": true})", "");
  EXPECT_EQ(old.generation().repetition_penalty, 1.5);
  EXPECT_EQ(old.translator_beams(old.generation()).search.repetition_penalty, 1.5);
  EXPECT_TRUE(old.generation().draws);
  EXPECT_TRUE(old.generation().not_applied.empty());
  // The other file alone counts, where it is there.
  const ModelFolder newer = folder("{" + translator + R"(, "repetition_penalty": 1.5})", "{}");
  EXPECT_EQ(newer.generation().repetition_penalty, 1.0);
  EXPECT_FALSE(newer.generation().draws);
}

// Also where a value of the right type would have no effect.
TEST_F(Generation, ValuesOfTheWrongTypeAreRefusedByFileAndKey) {
  const auto refused = [&](const std::string& generation, const std::string& words,
                           const std::string& config = "{" + translator + "}") {
    try {
      (void)folder(config, generation).generation();
      ADD_FAILURE() << generation << config << " was taken";
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const std::string file = "generation_config.json: ";
  refused(R"({"do_sample": "yes"})", file + "do_sample: expected true or false, got \"yes\"");
  refused(R"({"do_sample": 1})", file + "do_sample: expected true or false, got 1");
  refused(R"({"temperature": "hot"})", file + "temperature: expected a number");
  refused(R"({"num_beams": 0})", file + "num_beams: expected a whole number from 1 to 2^30, got 0");
  refused(R"({"num_beams": 1.5})", file + "num_beams: expected a whole number from 1 to 2^30, got 1.5");
  refused(R"({"max_new_tokens": -1})", file + "max_new_tokens: expected a whole number from 0");
  refused(R"({"eos_token_id": "x"})", file + "eos_token_id: expected an id, or a list of ids, got \"x\"");
  refused("{}", "/config.json: eos_token_id: expected an id",
          R"({"model_type": "bart", "eos_token_id": "2"})");
  const ModelFolder none = folder(
      "{" + translator + "}", R"({"do_sample": null, "num_beams": null, "temperature": null, "top_k": 0})");
  EXPECT_EQ(none.generation().beams, 1);
  EXPECT_FALSE(none.generation().draws);
}

TEST_F(Generation, MinNewTokensReplacesMinLength) {
  const ModelFolder none = folder("{" + translator + "}", R"({"min_length": 9})");
  EXPECT_EQ(none.generation().rules.min_length, 9);
  const ModelFolder zero = folder("{" + translator + "}", R"({"min_length": 9, "min_new_tokens": 0})");
  EXPECT_EQ(zero.generation().rules.min_length, 0);
}

TEST_F(Generation, TextsOfATranslatorEndAtItsPositions) {
  const ModelFolder plain = folder("{" + translator + "}", "");
  const TranslatorBeams beams = plain.translator_beams(plain.generation());
  EXPECT_EQ(beams.start, 3);
  EXPECT_EQ(beams.length_of(5), 20);   // 2 · 5 + 10
  EXPECT_EQ(beams.length_of(30), 40);  // the positions
  const ModelFolder longer = folder("{" + translator + "}", R"({"max_length": 200})");
  EXPECT_EQ(longer.translator_beams(longer.generation()).length_of(5), 40);
  const ModelFolder endless = folder(R"({"model_type": "bart", "decoder_start_token_id": 3})", "");
  EXPECT_THROW(endless.translator_beams(endless.generation()), FileError);
  const ModelFolder unstarted = folder(R"({"model_type": "bart", "eos_token_id": 3})", "");
  EXPECT_THROW(unstarted.translator_beams(unstarted.generation()), FileError);
}

}  // namespace
}  // namespace fovea::models
