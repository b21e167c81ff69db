// Files: bytes written by hand from the format's description, and bytes that lie.
#include "fovea/models/weights.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/tiny.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;

// A folder of this test's own, gone afterwards.
class Files : public testing::Test {
 protected:
  Files() : folder_(fs::temp_directory_path() / ("fovea-weights-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    fs::remove(path(name));  // ext4 flushes a file that is truncated and written again
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  fs::path folder_;
};

std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

// The reason of the FileError that loading gives; "" if it loads.
std::string refusal(const std::string& path) {
  try {
    load_safetensors(path);
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), path);
    return error.reason();
  }
  return "";
}

TEST_F(Files, ReadsWhatTheFormatDescribes) {
  const float f32[] = {1.5f, -2.0f};
  const double f64[] = {0.1};
  const std::uint16_t f16[] = {0x3c00, 0xc000}, bf16[] = {0x3f80};
  std::string data;
  const auto add = [&](const void* from, std::size_t size) {
    data.append(static_cast<const char*>(from), size);
  };
  add(f16, 4), add(f32, 8), add(bf16, 2), add(f64, 8);
  const TensorFile file = load_safetensors(
      write("x", safetensors(R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
                             R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                             R"("__metadata__":{"who":"été"},)"
                             R"("d":{"dtype":"F64","shape":[],"data_offsets":[14,22]},)"
                             R"("n":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
                             R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]}}   )",
                             data)));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.metadata.at("who"), "été");
  EXPECT_EQ(file.find("b")->shape(), (Shape{2, 1}));
  EXPECT_EQ(file.find("b")->data<float>()[1], -2.0f);
  EXPECT_EQ(static_cast<float>(file.find("a")->data<float16>()[1]), -2.0f);
  EXPECT_EQ(static_cast<float>(file.find("c")->data<bfloat16>()[0]), 1.0f);
  EXPECT_EQ(file.find("d")->data<double>()[0], 0.1);
  EXPECT_EQ(file.find("n")->count(), 0);
  EXPECT_EQ(file.find("e"), nullptr);
}

TEST_F(Files, WritesWhatTheFormatDescribes) {
  TensorFile file;
  Tensor a(DType::f32, {2}), b(DType::bf16, {3});
  a.data<float>()[0] = 1.0f, a.data<float>()[1] = 2.0f;
  for (int i = 0; i < 3; ++i) b.data<bfloat16>()[i] = bfloat16(static_cast<float>(i));
  file.tensors = {{"z", a}, {"a", b}};
  file.metadata["k"] = "v";
  save_safetensors(path("x"), file);
  const std::string bytes = read_file(path("x"), 4096);
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  EXPECT_EQ(header["z"], nlohmann::json::parse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"));
  EXPECT_EQ(header["a"], nlohmann::json::parse(R"({"dtype":"BF16","shape":[3],"data_offsets":[8,14]})"));
  EXPECT_EQ(header["__metadata__"]["k"], "v");
  ASSERT_EQ(bytes.size(), 8 + size + 14);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + size, a.raw(), 8), 0);
  EXPECT_FALSE(fs::exists(path("x.partial")));
}

TEST_F(Files, RefusesWhatLies) {
  const auto reason = [&](const std::string& header, std::size_t data = 8) {
    return refusal(write("x", safetensors(header, std::string(data, '\0'))));
  };
  const auto entry = [](const std::string& shape, const std::string& offsets,
                        const std::string& dtype = "\"F32\"") {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(reason(entry("[2]", "[0,8]")), "");  // the others differ from this one
  EXPECT_NE(reason(entry("[3]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[8,0]")), "");
  EXPECT_NE(reason(entry("[2]", "[1,9]")), "");
  EXPECT_NE(reason(entry("[2]", "[-8,0]")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[0.0,8.0]")), "");
  EXPECT_NE(reason(entry("[2]", "null")), "");
  EXPECT_NE(reason(entry("[-2]", "[0,8]")), "");
  EXPECT_NE(reason(entry("2", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2,1,1,1,1,1,1]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[4611686018427387904,4]", "[0,0]")),
            "");  // 2^64 elements: 0 if multiplied carelessly
  EXPECT_NE(reason(entry("[18446744073709551615]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]", "\"I32\"")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]", "7")), "");
  EXPECT_NE(reason(R"({"t":{}})"), "");
  EXPECT_NE(reason(R"({"t":[]})"), "");
  EXPECT_NE(reason(R"({"__metadata__":{"a":1}})", 0), "");
  EXPECT_NE(reason(R"({"__metadata__":[]})", 0), "");
  EXPECT_NE(reason("[]", 0), "");
  EXPECT_NE(reason("{", 0), "");
  EXPECT_NE(reason("", 0), "");
  EXPECT_NE(reason(std::string(100'000, '['), 0), "");  // depth
  EXPECT_NE(reason("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]"), 9).find("no tensor"), std::string::npos);
  EXPECT_NE(reason(entry("[2]", "[4,12]"), 12).find("no tensor"), std::string::npos);
}

TEST_F(Files, RefusesNamesTwiceAndSharedBytes) {
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_NE(refusal(write("x", safetensors("{\"t\":" + t + ",\"t\":" + t + "}", std::string(8, 'a'))))
                .find("named 't'"),
            std::string::npos);
  // 20,000 tensors on the same 4 MB would be 80 GB, were they read before they are compared.
  std::string header = "{";
  for (int i = 0; i < 20'000; ++i) {
    header += (i ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]})";
  }
  EXPECT_NE(refusal(write("y", safetensors(header + "}", std::string(4'000'000, 'a')))).find("overlap"),
            std::string::npos);
}

TEST_F(Files, RandomJunkIsRefused) {
  PhiloxStream random(9);
  for (int trial = 0; trial < 300; ++trial) {
    std::string junk(random.next_below(200), '\0');
    for (char& c : junk) c = static_cast<char>(random.next_u32());
    if (junk.size() >= 8 && trial % 2 == 0) {  // get past the size of the header
      const std::uint64_t size = random.next_below(static_cast<std::uint32_t>(junk.size()));
      std::memcpy(junk.data(), &size, 8);
    }
    EXPECT_NE(refusal(write("x", junk)), "");
  }
}

TEST_F(Files, ThatAreNoFiles) {
  EXPECT_NE(refusal(path("none")), "");
  EXPECT_NE(refusal(folder_.string()), "");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);  // opening it would wait for ever
  EXPECT_NE(refusal(path("pipe")), "");
  EXPECT_THROW(read_file(path("pipe"), 100), FileError);
  EXPECT_THROW(read_file(write("big", std::string(101, 'x')), 100), FileError);
}

TEST_F(Files, AFailedWriteLeavesTheOldFile) {
  write_file_atomically(path("x"), "old");
  fs::create_directory(path("x.partial"));  // so that the new one cannot be written beside
  EXPECT_THROW(write_file_atomically(path("x"), "new"), FileError);
  EXPECT_EQ(read_file(path("x"), 10), "old");
  fs::remove(path("x.partial"));
  write_file_atomically(path("x"), "new");
  EXPECT_EQ(read_file(path("x"), 10), "new");
  EXPECT_THROW(write_file_atomically(path("nowhere/x"), "new"), FileError);
  const Tensor one = Tensor::zeros(DType::f32, {1});
  EXPECT_THROW(save_safetensors(path("y"), {{{"t", one}, {"t", one}}, {}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path("y"), {{{"t", Tensor()}}, {}}), InvalidArgument);
  EXPECT_FALSE(fs::exists(path("y")));
}

// What load_model says of a folder whose tensors were changed by `change`.
template <class Change>
std::string folder_refusal(const std::string& folder, const SequenceToSequence& model, Change&& change) {
  save_model(folder, model);
  TensorFile file = load_safetensors(folder + "/model.safetensors");
  change(file);
  save_safetensors(folder + "/model.safetensors", file);
  try {
    load_model(folder);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Files, ModelFoldersNameTheTensorThatIsWrong) {
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.0f, 1);
    const std::string& first = model->parameters().all().back().name;
    const auto named = [&](TensorFile& file) -> NamedTensor& {
      return *std::find_if(file.tensors.begin(), file.tensors.end(),
                           [&](const NamedTensor& t) { return t.name == first; });
    };
    EXPECT_EQ(folder_refusal(path("m"), *model, [](TensorFile&) {}), "");
    const auto says = [&](const std::string& message, const std::string& words) {
      EXPECT_NE(message.find(words), std::string::npos) << kind.name << ": " << message;
    };
    says(folder_refusal(path("m"), *model, [&](TensorFile& file) { named(file).name = "odd"; }),
         first + "' is missing");
    says(folder_refusal(path("m"), *model,
                        [](TensorFile& file) {
                          file.tensors.push_back({"odd", Tensor::zeros(DType::f32, {1})});
                        }),
         "'odd' belongs to no parameter");
    says(folder_refusal(path("m"), *model,
                        [&](TensorFile& file) {
                          named(file).tensor = Tensor::zeros(DType::f32, {1, tiny_vocabulary});
                        }),
         first + "': expected shape [13], got [1, 13]");
  }
}

TEST_F(Files, OtherDtypesAreConverted) {
  const auto model = every_kind().front().make(0.0f, 1);
  const std::string name = model->parameters().all().front().name;
  EXPECT_EQ(folder_refusal(path("m"), *model,
                           [&](TensorFile& file) {
                             for (NamedTensor& named : file.tensors) {
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

// A config may not make a reader allocate more than its weights could fill.
TEST_F(Files, AHugeConfigIsRefusedBeforeItIsBelieved) {
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

// What load_model says of a folder with this config.json.
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

TEST_F(Files, AMalformedConfigIsRefusedWithItsLineAndColumn) {
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

// Every key, missing or wrong, is named.
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
          // A decoder size that must equal the encoder's is reported as whichever of the two is read first.
          const std::string size = key.substr(key.find('_') + 1);
          EXPECT_NE(error.argument().find(key.starts_with("encoder_") ? size : key), std::string::npos)
              << error.what();
        }
      }
    }
  }
}

TEST(Config, RefusesVariationsItDoesNotHave) {
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
