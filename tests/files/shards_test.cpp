// Tensors in several files: which indexes are accepted, and the errors of the others.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "files/fuzz_count.h"
#include "files/mutated.h"
#include "files/scratch.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/files/safetensors.h"

namespace fovea::files {
namespace {

Tensor numbered(std::int64_t count, float first) {
  Tensor tensor(DType::f32, {count});
  for (std::int64_t i = 0; i < count; ++i) tensor.data<float>()[i] = first + static_cast<float>(i);
  return tensor;
}

class Shards : public ScratchFolder {
 protected:
  // a.safetensors has x and z, b.safetensors y.
  void SetUp() override {
    save_safetensors(path("a.safetensors"), {{{"x", numbered(2, 1)}, {"z", numbered(1, 5)}}, {{"k", "a"}}});
    save_safetensors(path("b.safetensors"), {{{"y", numbered(3, 3)}}, {{"k", "b"}, {"l", "b"}}});
  }

  std::string index_of(const std::string& json) const { return write("model.safetensors.index.json", json); }

  // The error of loading; "" if it loads.
  std::string refusal(const std::string& json) const {
    try {
      load_sharded_safetensors(index_of(json));
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }

  const std::string good_ =
      R"({"metadata":{"total_size":24},"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"a.safetensors"}})";
};

TEST_F(Shards, LoadLikeOneFile) {
  const TensorFile file = load_sharded_safetensors(index_of(good_));
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors[0].name, "x");
  EXPECT_EQ(file.tensors[1].name, "y");
  EXPECT_EQ(file.tensors[2].name, "z");
  EXPECT_EQ(file.find("x")->data<float>()[1], 2.0f);
  EXPECT_EQ(file.find("y")->shape(), (Shape{3}));
  EXPECT_EQ(file.find("z")->data<float>()[0], 5.0f);
  EXPECT_EQ(file.metadata.at("l"), "b");
  // A shard may be a link, as in a cache of models.
  std::filesystem::rename(path("b.safetensors"), path("blob"));
  std::filesystem::create_symlink(path("blob"), path("b.safetensors"));
  EXPECT_EQ(refusal(good_), "");
}

TEST_F(Shards, AreRefusedWithTheReason) {
  const auto says = [&](const std::string& map, const std::string& words) {
    const std::string what = refusal("{\"weight_map\":" + map + "}");
    EXPECT_NE(what.find(words), std::string::npos) << map << ": " << what;
    EXPECT_LT(what.size(), 1000u);
  };
  const std::string x = R"({"x":"a.safetensors",)", y = R"("y":"b.safetensors",)",
                    z = R"("z":"a.safetensors")";
  says(x + y + z + "}", "");
  for (const char* outside :
       {"../a.safetensors", "/a.safetensors", "sub/b.safetensors", "..\\\\a.safetensors", "a.bin", "",
        ".safetensors", "a\\u0000.safetensors", "model.safetensors.index.json"})
    says(x + "\"y\":\"" + outside + "\"," + z + "}", "tensor 'y': expected the name of a .safetensors file");
  says(x + y + R"("w":"b.safetensors",)" + z + "}", "(byte 55): tensor 'w' is not in its shard");
  says(x + y + R"("z":"b.safetensors"})", "a.safetensors: tensor 'z' is not given to this shard");
  says(x + y + R"("yy":"b.safetensors",)" + z + "}", "(byte 55): tensor 'yy' is not in its shard");
  says(x + z + "}", "");  // b.safetensors is no shard of this index
  says(R"({"x":"a.safetensors",)" + y.substr(0, y.size() - 1) + "}", "tensor 'z' is not given to this shard");
  says(x + y + z + R"(,"x":"b.safetensors"})", "(byte 75): tensor 'x' is there twice");
  says(x + R"("y":"c.safetensors",)" + z + "}", "c.safetensors: does not exist");
  says(x + R"("y":7}})", "tensor 'y': expected the name of a shard, got a number");
  says("[]", "expected an object of tensors and their shards, got an array");
  EXPECT_NE(refusal("{}").find("has no weight_map"), std::string::npos);
  EXPECT_NE(refusal(R"({"weight_map":{},"weight_map":{}})").find("two values of 'weight_map'"),
            std::string::npos);
  EXPECT_NE(refusal("{\"weight_map\":{}").find("syntax error"), std::string::npos);
  EXPECT_NE(refusal("{\"metadata\":" + std::string(100'000, '[')).find("nest too deep"), std::string::npos);
  EXPECT_THROW(load_sharded_safetensors(path("none")), FileError);
  // Bytes of a shard that its header does not cover are refused, as in a single file.
  std::ofstream(path("b.safetensors"), std::ios::app) << "more";
  EXPECT_NE(refusal(good_).find("belong to no tensor"), std::string::npos);
}

TEST_F(Shards, AnIndexOfTooManyFilesIsRefusedBeforeOneIsOpened) {
  std::string map = "{\"weight_map\":{";
  for (int i = 0; i <= 10'000; ++i) {
    map += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\"";
  }
  EXPECT_NE(refusal(map + "}}").find("more than 10000 shards"), std::string::npos);
}

// An index that loads has the contents that another parser reads, from the shard that it names.
TEST_F(Shards, MutationsAreRefusedOrReadAsAnotherParserReadsThem) {
  PhiloxStream random(20261122);
  const int count = fuzz_count(3000);
  int loaded = 0, refused = 0;
  for (int trial = 0; trial < count; ++trial) {
    const std::string json = mutated(good_, random);
    TensorFile file;
    try {
      file = load_sharded_safetensors(index_of(json));
    } catch (const FileError& error) {
      EXPECT_LT(std::strlen(error.what()), 1000u);
      ++refused;
      continue;
    }
    ++loaded;
    const auto theirs = nlohmann::json::parse(json, nullptr, false);
    ASSERT_TRUE(theirs.is_object()) << json;
    const auto& map = theirs.at("weight_map");
    EXPECT_EQ(map.size(), file.tensors.size()) << json;
    for (const auto& [name, shard] : map.items()) {
      ASSERT_TRUE(file.find(name)) << json;
      EXPECT_EQ(shard, name == "y" ? "b.safetensors" : "a.safetensors") << json;
    }
  }
  EXPECT_GT(loaded, count / 150);
  EXPECT_GT(refused, count / 3);
}

TEST_F(Shards, RoundTrip) {
  TensorFile file;
  for (int i = 0; i < 7; ++i)
    file.tensors.push_back({"t" + std::to_string(i), numbered(i == 3 ? 9 : 2, 10.0f * i)});
  file.metadata["format"] = "pt";
  std::filesystem::create_directory(path("m"));
  save_sharded_safetensors(path("m"), file, 16);
  // Two tensors of 8 bytes fit into one shard; the fourth has 36 bytes and a shard of its own.
  const auto index = nlohmann::json::parse(read_file(path("m/model.safetensors.index.json"), 1 << 16));
  EXPECT_EQ(index["metadata"]["total_size"], 6 * 8 + 36);
  EXPECT_EQ(index["weight_map"]["t1"], "model-00001-of-00005.safetensors");
  EXPECT_EQ(index["weight_map"]["t2"], "model-00002-of-00005.safetensors");
  EXPECT_EQ(index["weight_map"]["t3"], "model-00003-of-00005.safetensors");
  EXPECT_EQ(index["weight_map"]["t6"], "model-00005-of-00005.safetensors");
  EXPECT_EQ(find_weights(path("m")), path("m/model.safetensors.index.json"));
  const TensorFile again = load_weights(find_weights(path("m")));
  ASSERT_EQ(again.tensors.size(), file.tensors.size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    EXPECT_EQ(again.tensors[i].name, file.tensors[i].name);
    ASSERT_EQ(again.tensors[i].tensor.bytes(), file.tensors[i].tensor.bytes());
    EXPECT_EQ(std::memcmp(again.tensors[i].tensor.raw(), file.tensors[i].tensor.raw(),
                          file.tensors[i].tensor.bytes()),
              0);
  }
  EXPECT_EQ(again.metadata, file.metadata);
  // A single whole file takes precedence over an index, as in transformers.
  save_safetensors(path("m/model.safetensors"), file);
  EXPECT_EQ(find_weights(path("m")), path("m/model.safetensors"));
  EXPECT_THROW(find_weights(path("none")), FileError);
  file.tensors.push_back(file.tensors.front());
  EXPECT_THROW(save_sharded_safetensors(path("m"), file, 16), InvalidArgument);
}

}  // namespace
}  // namespace fovea::files
