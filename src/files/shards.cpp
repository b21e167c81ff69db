// Tensors in several files: model.safetensors.index.json and the shards beside it.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "core/excerpt.h"
#include "files/json_scanner.h"
#include "files/safetensors_header.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/files/safetensors.h"
#include "fovea/files/weights.h"

namespace fovea::files {
namespace {

// That of a header, which names as many tensors. Indices of the largest public models are below 1 MB.
constexpr std::size_t longest_index = 100'000'000;
constexpr std::size_t most_shards = 10'000;
constexpr int metadata_depth = 8;
constexpr std::string_view suffix = ".safetensors";
// `"":"a.safetensors",` without the comma.
constexpr std::size_t shortest_shard_entry = 18;

// A tensor of the index, in 12 bytes: names stay in the text.
struct Entry {
  std::uint32_t name_at = 0, name_size = 0, shard = 0;

  std::string_view name(std::string_view text) const { return text.substr(name_at, name_size); }
};

struct Index {
  std::vector<Entry> entries;            // in the order of their shards, and in a shard of their names
  std::vector<std::string_view> shards;  // distinct
};

// A name in the folder of the index, and nothing else: an index may come from a stranger.
bool is_plain_name(std::string_view name) {
  return name.size() > suffix.size() && name.ends_with(suffix) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

class IndexReader {
 public:
  IndexReader(const std::string& path, std::string& text)
      : path_(path), text_(text), scanner_(path, text, JsonScanner::Position::byte) {}

  Index read() {
    bool has_map = false;
    scanner_.open_object("an object with a weight_map");
    for (std::string_view key; scanner_.next_member(key);) {
      if (key != "weight_map") {
        scanner_.skip_value(metadata_depth);
        continue;
      }
      if (has_map) scanner_.fail("two values of 'weight_map'");
      has_map = true;
      read_map();
    }
    scanner_.finish();
    if (!has_map) throw FileError(path_, -1, "has no weight_map");
    check_names();
    std::sort(index_.entries.begin(), index_.entries.end(), [this](const Entry& a, const Entry& b) {
      return a.shard != b.shard ? a.shard < b.shard : a.name(text_) < b.name(text_);
    });
    return std::move(index_);
  }

 private:
  void read_map() {
    index_.entries.reserve(text_.size() / shortest_shard_entry);
    std::map<std::string_view, std::uint32_t> numbers;
    scanner_.open_object("an object of tensors and their shards");
    for (std::string_view name; scanner_.next_member(name);) {
      scanner_.set_context("tensor", name);
      const std::string_view shard = scanner_.string("the name of a shard");
      if (!is_plain_name(shard)) {
        scanner_.fail("expected the name of a .safetensors file in the folder of the index, got '" +
                      excerpt(shard) + "'");
      }
      const auto [found, fresh] =
          numbers.try_emplace(shard, static_cast<std::uint32_t>(index_.shards.size()));
      if (fresh && index_.shards.size() == most_shards)
        scanner_.fail("more than " + std::to_string(most_shards) + " shards");
      if (fresh) index_.shards.push_back(shard);
      index_.entries.push_back({static_cast<std::uint32_t>(name.data() - text_.data()),
                                static_cast<std::uint32_t>(name.size()), found->second});
      scanner_.set_context("", "");
    }
  }

  void check_names() {
    std::vector<Entry>& entries = index_.entries;
    std::sort(entries.begin(), entries.end(), [this](const Entry& a, const Entry& b) {
      return std::pair(a.name(text_), a.name_at) < std::pair(b.name(text_), b.name_at);
    });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(),
                           [this](const Entry& a, const Entry& b) { return a.name(text_) == b.name(text_); });
    if (twice == entries.end()) return;
    throw FileError(path_, static_cast<std::int64_t>(twice[1].name_at) - 1,
                    "tensor '" + excerpt(twice[1].name(text_)) + "' is there twice");
  }

  const std::string& path_;
  std::string& text_;
  JsonScanner scanner_;
  Index index_;
};

// The tensors of a shard are those that the index gives it, both in the order of their names.
template <class Named>
void check_shard(const std::string& index, const std::string& shard, std::span<const Entry> entries,
                 std::string_view text, std::span<const Named> tensors) {
  std::size_t at = 0;
  const auto missing = [&] {
    throw FileError(
        index, static_cast<std::int64_t>(entries[at].name_at) - 1,
        "tensor '" + excerpt(entries[at].name(text)) + "' is not in its shard '" + excerpt(shard) + "'");
  };
  for (const Named& named : tensors) {
    if (at < entries.size() && entries[at].name(text) < named.name) missing();
    if (at == entries.size() || entries[at].name(text) != named.name)
      throw FileError(shard, -1,
                      "tensor '" + excerpt(named.name) + "' is not given to this shard by the index");
    ++at;
  }
  if (at < entries.size()) missing();
}

// Which tensors go together: in their order, as many as fit.
std::vector<TensorFile> cut(const TensorFile& file, std::size_t shard_bytes) {
  std::vector<TensorFile> shards(1);
  std::size_t filled = 0;
  for (const NamedTensor& named : file.tensors) {
    if (filled > 0 && filled + named.tensor.bytes() > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().tensors.push_back(named);
    filled += named.tensor.bytes();
  }
  for (TensorFile& shard : shards) shard.metadata = file.metadata;
  return shards;
}

std::string shard_name(std::size_t number, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

// Calls `load` for the file of every shard; it returns the tensors that it found there, which are checked.
template <class Load>
void for_shards(const std::filesystem::path& index, Load&& load) {
  const std::string path = index.string();
  std::string text = read_file(index, longest_index);
  const Index read = IndexReader(path, text).read();
  auto begin = read.entries.begin();
  for (std::uint32_t shard = 0; shard < read.shards.size(); ++shard) {
    const auto end =
        std::find_if(begin, read.entries.end(), [&](const Entry& e) { return e.shard != shard; });
    const std::filesystem::path file = index.parent_path() / std::string(read.shards[shard]);
    check_shard(path, file.string(), std::span(begin, end), text, load(file));
    begin = end;
  }
}

}  // namespace

TensorFile load_sharded_safetensors(const std::filesystem::path& index) {
  TensorFile whole;
  for_shards(index, [&](const std::filesystem::path& file) {
    TensorFile part = load_safetensors(file);
    const std::size_t before = whole.tensors.size();
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(whole.tensors));
    whole.metadata.merge(part.metadata);
    return std::span<const NamedTensor>(whole.tensors).subspan(before);
  });
  std::sort(whole.tensors.begin(), whole.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return whole;
}

void save_sharded_safetensors(const std::filesystem::path& folder, const TensorFile& file,
                              std::size_t shard_bytes) {
  std::set<std::string_view> names;
  for (const NamedTensor& named : file.tensors) {
    if (!names.insert(named.name).second)
      throw InvalidArgument("save_sharded_safetensors", "file.tensors", "distinct names",
                            named.name + " again");
  }
  const std::vector<TensorFile> shards = cut(file, shard_bytes);
  nlohmann::json map = nlohmann::json::object();
  std::size_t total = 0;
  for (std::size_t n = 0; n < shards.size(); ++n) {
    const std::string name = shard_name(n + 1, shards.size());
    save_safetensors(folder / name, shards[n]);
    for (const NamedTensor& named : shards[n].tensors) {
      map[named.name] = name;
      total += named.tensor.bytes();
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file(folder / "model.safetensors.index.json",
             index.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::filesystem::path find_weights(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(folder / name, error)) return folder / name;
  }
  throw FileError(folder.string(), -1,
                  "holds no weights: neither model.safetensors nor model.safetensors.index.json");
}

TensorFile load_weights(const std::filesystem::path& path) {
  return path.extension() == ".json" ? load_sharded_safetensors(path) : load_safetensors(path);
}

WeightFile::WeightFile(const std::filesystem::path& path) : path_(path.string()) {
  if (path.extension() != ".json") {
    add(path);
  } else {
    for_shards(path, [&](const std::filesystem::path& file) {
      const std::size_t before = tensors_.size();
      add(file);
      return std::span<const StoredTensor>(tensors_).subspan(before);
    });
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

void WeightFile::add(const std::filesystem::path& path) {
  const auto file = std::make_shared<InputFile>(path);
  SafetensorsFile opened = open_safetensors(*file, StoredTypes::all);
  mapped_.push_back(file->map());
  const std::byte* data = mapped_.back().get() + opened.data_begin;
  tensors_.reserve(tensors_.size() + opened.header.entries.size());
  for (const SafetensorsEntry& entry : opened.header.entries)
    tensors_.push_back({std::string(entry.name(opened.text)),
                        entry.type,
                        shape_of(entry, opened.text),
                        {data + entry.begin, entry.end - entry.begin},
                        file->name(),
                        file,
                        opened.data_begin + entry.begin});
}

const StoredTensor* WeightFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor& tensor, std::string_view n) { return tensor.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace fovea::files
