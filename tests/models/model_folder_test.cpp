// Folders of models: their contents, and the errors of damaged ones.
#include "fovea/models/model_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "fovea/files/bytes.h"
#include "fovea/models/shortlist.h"
#include "models/tiny.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;

// A folder of this test alone, removed afterwards.
class Folders : public testing::Test {
 protected:
  Folders() : folder_(fs::temp_directory_path() / ("fovea-folders-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Folders() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    fs::remove(path(name));  // ext4 flushes a file that is truncated and written again
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  fs::path folder_;
};

// The error of reading the folder, packed or not; "" if there is none.
std::string reading_refusal(const std::string& folder, std::optional<autograd::WeightType> packed) {
  try {
    ModelFolder(folder).sequence_to_sequence(packed);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

// The error of load_model for a folder whose tensors were changed by `change`. A packed reading has the same.
template <class Change>
std::string folder_refusal(const std::string& folder, const SequenceToSequence& model, Change&& change) {
  save_model(folder, model);
  files::TensorFile file = files::load_safetensors(folder + "/model.safetensors");
  change(file);
  files::save_safetensors(folder + "/model.safetensors", file);
  const std::string refusal = reading_refusal(folder, {});
  EXPECT_EQ(reading_refusal(folder, autograd::WeightType::f32), refusal);
  return refusal;
}

TEST_F(Folders, ModelFoldersNameTheTensorThatIsWrong) {
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.0f, 1);
    const std::string& first = model->parameters().all().back().name;
    const auto named = [&](files::TensorFile& file) -> files::NamedTensor& {
      return *std::find_if(file.tensors.begin(), file.tensors.end(),
                           [&](const files::NamedTensor& t) { return t.name == first; });
    };
    EXPECT_EQ(folder_refusal(path("m"), *model, [](files::TensorFile&) {}), "");
    const auto says = [&](const std::string& message, const std::string& words) {
      EXPECT_NE(message.find(words), std::string::npos) << kind.name << ": " << message;
    };
    says(folder_refusal(path("m"), *model, [&](files::TensorFile& file) { named(file).name = "odd"; }),
         first + "' is missing");
    says(folder_refusal(path("m"), *model,
                        [](files::TensorFile& file) {
                          file.tensors.push_back({"odd", Tensor::zeros(DType::f32, {1})});
                        }),
         "'odd' belongs to no parameter");
    says(folder_refusal(path("m"), *model,
                        [&](files::TensorFile& file) {
                          named(file).tensor = Tensor::zeros(DType::f32, {1, tiny_vocabulary});
                        }),
         first + "': expected shape [13], got [1, 13]");
  }
}

TEST_F(Folders, OtherDtypesAreConverted) {
  const auto model = every_kind().front().make(0.0f, 1);
  const std::string name = model->parameters().all().front().name;
  EXPECT_EQ(folder_refusal(path("m"), *model,
                           [&](files::TensorFile& file) {
                             for (files::NamedTensor& named : file.tensors) {
                               if (named.name != name) continue;
                               Tensor half(DType::f16, named.tensor.shape());
                               for (std::int64_t i = 0; i < half.count(); ++i)
                                 half.data<float16>()[i] = float16(named.tensor.data<float>()[i]);
                               named.tensor = half;
                             }
                           }),
            "");
  const auto again = load_model(path("m"));
  const nn::Parameter& parameter = model->parameters().all().front();
  for (std::int64_t i = 0; i < parameter.value.count(); ++i) {
    EXPECT_EQ(again->parameters().at(name).value.data<float>()[i],
              static_cast<float>(float16(parameter.value.data<float>()[i])));
  }
}

// Matrices that are packed from the mapped file, and rows of a short-list that are read from it.
TEST_F(Folders, PackedFromTheFileAsFromMemory) {
  const auto shared = std::make_shared<const Shortlist>(
      std::vector<std::int32_t>{4, 5}, std::vector<std::vector<std::int32_t>>(tiny_vocabulary, {6, 7, 8}));
  const Sentences sources = random_sentences(5, 6, 3);
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.0f, 21);
    perturb(*model, 22, 0.6f);
    save_model(path("m"), *model);
    for (const auto type :
         {autograd::WeightType::f32, autograd::WeightType::bf16, autograd::WeightType::int8}) {
      model->parameters().pack(type);
      const auto read = ModelFolder(path("m")).sequence_to_sequence(type);
      for (const auto& shortlist : {std::shared_ptr<const Shortlist>(), shared}) {
        const DecodeOptions options{.beam_size = 2, .shortlist = shortlist};
        const auto expected = decode(*model, sources, options), got = decode(*read, sources, options);
        for (std::size_t i = 0; i < sources.size(); ++i) {
          EXPECT_EQ(got[i][0].ids, expected[i][0].ids) << kind.name;
          EXPECT_EQ(got[i][0].log_probability, expected[i][0].log_probability) << kind.name;
        }
      }
    }
  }
}

// Packed matrices have no values that could be written, so nothing is.
TEST_F(Folders, RefusesToSaveWhatWasReadPacked) {
  for (const Kind& kind : every_kind()) {
    save_model(path("m"), *kind.make(0.0f, 1));
    const auto read = ModelFolder(path("m")).sequence_to_sequence(autograd::WeightType::f32);
    EXPECT_THROW(save_model(path("other"), *read), InvalidArgument) << kind.name;
  }
  const LanguageModelConfig config{
      .vocabulary = 5, .dim = 8, .feed_forward = 8, .heads = 2, .layers = 1, .mixers = {LayerMixer::gla}};
  save_model(path("m"), LanguageModel(config, 1));
  const LanguageModel read = ModelFolder(path("m")).language_model(autograd::WeightType::int8);
  EXPECT_THROW(save_model(path("other"), read), InvalidArgument);
  EXPECT_FALSE(fs::exists(path("other")));
}

// Only types that a tensor can have: the file stores an integer where the model has numbers.
TEST_F(Folders, AnIntegerIsNoWeight) {
  const auto model = every_kind().front().make(0.0f, 1);
  save_model(path("m"), *model);
  std::string bytes = files::read_file(path("m/model.safetensors"), std::size_t{1} << 24);
  const std::size_t at = bytes.find("\"F32\"");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 5, "\"I32\"");
  write("m/model.safetensors", bytes);
  for (const auto packed : {std::optional<autograd::WeightType>(), std::optional(autograd::WeightType::f32)})
    EXPECT_NE(reading_refusal(path("m"), packed).find("F32, F64, BF16 or F16, got"), std::string::npos)
        << reading_refusal(path("m"), packed);
}

// A config must not make a reader allocate more than its weights could fill.
TEST_F(Folders, AHugeConfigIsRefusedBeforeItAllocates) {
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.0f, 1);
    save_model(path("m"), *model);
    const auto config = nlohmann::json::parse(model->config());
    for (const char* key :
         {"vocab_size", "hidden_size", "embedding_size", "d_model", "encoder_layers", "encoder_ffn_dim"}) {
      if (!config.contains(key)) continue;
      auto larger = config;
      larger[key] = std::string(key) == "vocab_size"       ? 10'000'000
                    : std::string(key) == "encoder_layers" ? 1'000
                                                           : 65'536;
      if (larger.contains("decoder_ffn_dim")) larger["decoder_ffn_dim"] = larger["encoder_ffn_dim"];
      write("m/config.json", larger.dump());
      EXPECT_THROW(load_model(path("m")), FileError) << kind.name << " " << key;
    }
    write("m/config.json", "{");
    EXPECT_THROW(load_model(path("m")), FileError);
  }
}

// The error of load_model for a folder with this config.json.
std::string config_refusal(const std::string& folder, const std::string& config) {
  save_model(folder, *every_kind().front().make(0.0f, 1));
  std::ofstream(folder + "/config.json", std::ios::binary | std::ios::trunc) << config;
  try {
    load_model(folder);
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), folder + "/config.json");
    return error.what();
  }
  return "";
}

TEST_F(Folders, AMalformedConfigIsRefusedWithItsLineAndColumn) {
  const auto says = [&](const std::string& config, const std::string& words) {
    const std::string what = config_refusal(path("m"), config);
    EXPECT_NE(what.find(words), std::string::npos) << what;
    EXPECT_LT(what.size(), 1000u);
  };
  says("{\n \"model_type\": \"fovea-rnn\",\n \"vocab_size\" 13}",
       "config.json (line 3, column 15): syntax error: expected ':', got '1'");
  says("", "config.json (line 1, column 1): syntax error");
  says("[]", "(line 1, column 1): expected a JSON object, got an array");
  says("{\"dropout\": 1e999}", "(line 1, column 13): expected a number that is finite");
  says("{\"a\": " + std::string(100'000, '['), "nest too deep");
  says("{\"a\": 1,\n\"a\": 2}", "(line 2, column 1): two values of 'a'");
  auto config = nlohmann::json::parse(every_kind().front().make(0.0f, 1)->config());
  config["cell"] = std::string(100'000, 'x');
  says(config.dump(), "… (100,002 characters)");
  says(R"({"model_type": ")" + std::string(100'000, 'x') + "\"}", "… (100,002 characters)");
  EXPECT_THROW(make_model("{", 1), InvalidArgument);
}

TEST(Config, RoundTrip) {
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.3f, 1);
    const auto again = make_model(model->config(), 1);
    EXPECT_EQ(again->config(), model->config());
    const auto& a = model->parameters().all();
    const auto& b = again->parameters().all();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].name, b[i].name);
      EXPECT_EQ(std::memcmp(a[i].value.raw(), b[i].value.raw(), a[i].value.bytes()), 0) << a[i].name;
    }
  }
}

// An error names the key that is missing or wrong; tried for every key.
TEST(Config, ErrorsNameTheKey) {
  for (const Kind& kind : every_kind()) {
    const auto config = nlohmann::json::parse(kind.make(0.0f, 1)->config());
    for (const auto& [key, value] : config.items()) {
      for (const auto& wrong : {nlohmann::json(-1), nlohmann::json("odd"), nlohmann::json::array()}) {
        auto changed = config;
        changed[key] = wrong;
        try {
          make_model(changed.dump(), 1);
          ADD_FAILURE() << key << " accepts " << wrong;
        } catch (const InvalidArgument& error) {
          // If a decoder size must equal the encoder's, the error names whichever of the two is read first.
          const std::string size = key.substr(key.find('_') + 1);
          EXPECT_NE(error.argument().find(key.starts_with("encoder_") ? size : key), std::string::npos)
              << error.what();
        }
      }
    }
  }
}

TEST(Config, RefusesUnsupportedVariations) {
  auto config = nlohmann::json::parse(every_kind()[3].make(0.0f, 1)->config());
  const auto refuses = [&](const char* key, const nlohmann::json& value) {
    auto changed = config;
    changed[key] = value;
    EXPECT_THROW(make_model(changed.dump(), 1), InvalidArgument) << key;
  };
  refuses("activation_function", "gelu");
  refuses("tie_word_embeddings", false);
  refuses("scale_embedding", false);
  refuses("decoder_ffn_dim", 13);
  refuses("encoder_attention_heads", 3);
}

}  // namespace
}  // namespace fovea::models
