#include "core/model/formats/hf/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

// Ten thousand tensors take about one megabyte of header.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{32} << 20;
constexpr std::size_t kMaxShapeDims = 8;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 56;
constexpr int kHeaderDepth = 4;

struct StoredType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> type;
};
const StoredType kStoredTypes[] = {
    {"F32", 4, DType::kF32}, {"F16", 2, DType::kF16}, {"BF16", 2, DType::kBF16},
    {"F64", 8, {}},          {"I64", 8, {}},          {"I32", 4, {}},
    {"I16", 2, {}},          {"I8", 1, {}},           {"U64", 8, {}},
    {"U32", 4, {}},          {"U16", 2, {}},          {"U8", 1, {}},
    {"BOOL", 1, {}},         {"F8_E4M3", 1, {}},      {"F8_E5M2", 1, {}},
};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::vector<StoredTensor> read() {
    const json header = parse_json_object(header_text(), name_, kHeaderDepth);
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") {
        check_metadata(value);
      } else {
        tensors_.push_back(read_tensor(key, value));
      }
    }
    check_layout();
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw StartupError(fmt::format("{}: not a usable safetensors file: {}", name_, what));
  }

  std::string_view header_text() {
    if (const std::string other = other_format(bytes_, FileFormat::kSafetensors); !other.empty()) fail(other);
    std::uint64_t length = 0;
    if (bytes_.size() < sizeof length) fail("it ends within the header's length");
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length > kMaxHeaderBytes) fail(fmt::format("it claims a header of {} bytes", length));
    if (length > bytes_.size() - sizeof length)
      fail(fmt::format("it ends within its header of {} bytes: it is incomplete, download it again", length));
    const auto header = bytes_.subspan(sizeof length, static_cast<std::size_t>(length));
    data_ = bytes_.subspan(sizeof length + header.size());
    return {reinterpret_cast<const char*>(header.data()), header.size()};
  }

  void check_metadata(const json& metadata) const {
    const bool strings =
        metadata.is_object() && std::ranges::all_of(metadata, [](const json& value) { return value.is_string(); });
    if (!strings) fail("'__metadata__' is not a map of strings");
  }

  std::uint64_t unsigned_number(const json& value, const std::string& tensor, const char* what) const {
    if (!value.is_number_unsigned()) fail(fmt::format("tensor '{}' has {} that is no count", printable(tensor), what));
    return value.get<std::uint64_t>();
  }

  StoredTensor read_tensor(const std::string& name, const json& entry) const;
  void check_layout() const;

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  const std::string& name_;
  std::vector<StoredTensor> tensors_;
};

StoredTensor HeaderReader::read_tensor(const std::string& name, const json& entry) const {
  const auto bad = [&](const std::string& what) { fail(fmt::format("tensor '{}' {}", printable(name), what)); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
    bad("has no dtype, shape and data_offsets");
  }
  const json& dtype = entry["dtype"];
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  if (!dtype.is_string()) bad("has a dtype that is no string");
  if (!shape.is_array() || shape.size() > kMaxShapeDims) bad("has a shape that is no array of a few dimensions");
  if (!offsets.is_array() || offsets.size() != 2) bad("has data_offsets that are no pair");

  StoredTensor tensor;
  tensor.name = name;
  tensor.type_name = printable(dtype.get_ref<const std::string&>());
  std::uint64_t num_elements = 1;
  for (const json& element : shape) {
    const std::uint64_t dim = unsigned_number(element, name, "a dimension");
    if (dim > kMaxElements / std::max<std::uint64_t>(num_elements, 1)) bad(fmt::format("claims the dimension {}", dim));
    num_elements *= dim;
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  const std::uint64_t begin = unsigned_number(offsets[0], name, "an offset");
  const std::uint64_t end = unsigned_number(offsets[1], name, "an offset");
  if (begin > end || end > data_.size()) {
    bad(fmt::format("lies from {} to {} of {} bytes of data: the file is incomplete, download it again", begin, end,
                    data_.size()));
  }
  const auto* stored = std::ranges::find(kStoredTypes, tensor.type_name, &StoredType::name);
  if (stored != std::end(kStoredTypes)) {
    tensor.type = stored->type;
    if (end - begin != num_elements * stored->bytes) {
      bad(fmt::format("has {} bytes where its shape and type need {}", end - begin, num_elements * stored->bytes));
    }
  }
  tensor.data = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

// Checks that tensors leave no gap and do not overlap.
void HeaderReader::check_layout() const {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors_)
    order.push_back(&tensor);
  std::ranges::sort(order, {},
                    [](const StoredTensor* tensor) { return std::pair(tensor->data.data(), tensor->data.size()); });
  const std::byte* expected = data_.data();
  for (const StoredTensor* tensor : order) {
    if (tensor->data.data() < expected) fail(fmt::format("tensor '{}' overlaps another", printable(tensor->name)));
    if (tensor->data.data() > expected)
      fail(fmt::format("there is a hole before tensor '{}'", printable(tensor->name)));
    expected += tensor->data.size();
  }
  if (expected != data_.data() + data_.size()) fail("there are bytes after the last tensor");
}

// Whether the name is a file's beside the index, and safe in a message.
bool is_plain_file_name(const std::string& name) {
  constexpr std::size_t kLongest = 255;
  const auto is_plain = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F && c != '/'; };
  return !name.empty() && name.size() <= kLongest && name != "." && name != ".." && std::ranges::all_of(name, is_plain);
}

std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  const auto parsed = read_json_file(index);
  const JsonObject object(*parsed, index.string());
  const json* map = object.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) object.fail("has no 'weight_map'");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      object.fail(fmt::format("the tensor '{}' is mapped to no file name", printable(tensor)));
    }
    out.emplace(tensor, file.get<std::string>());
  }
  return out;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  return HeaderReader(bytes, name).read();
}

std::vector<std::unique_ptr<SafetensorsFile>> open_safetensors_directory(const std::filesystem::path& directory) {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  if (is_there(directory / "model.safetensors")) {
    files.push_back(std::make_unique<SafetensorsFile>(directory / "model.safetensors"));
    return files;
  }
  const auto index = directory / "model.safetensors.index.json";
  if (!is_there(index)) {
    throw StartupError(fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json{}",
                                   directory.string(), instead_of_weights(directory)));
  }
  std::map<std::string, std::string> missing = read_weight_map(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : missing)
    names.insert(file);
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!is_there(directory / name)) {
      throw StartupError(fmt::format("{}: the shard {} is missing of the {} that it names: download it too",
                                     index.string(), printable(name), names.size()));
    }
    files.push_back(std::make_unique<SafetensorsFile>(directory / name));
    for (const StoredTensor& tensor : files.back()->tensors()) {
      if (!seen.insert(tensor.name).second) {
        throw StartupError(fmt::format("{}: the tensor '{}' is in two shards", index.string(), printable(tensor.name)));
      }
      const auto mapped = missing.find(tensor.name);
      if (mapped != missing.end() && mapped->second == name) missing.erase(mapped);
    }
  }
  if (!missing.empty()) {
    throw StartupError(fmt::format("{}: the tensor '{}' is not in {}", index.string(),
                                   printable(missing.begin()->first), printable(missing.begin()->second)));
  }
  return files;
}

}  // namespace quire
