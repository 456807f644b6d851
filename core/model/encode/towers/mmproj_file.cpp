#include "core/model/encode/towers/mmproj_file.h"

#include <fmt/core.h>

#include "core/base/result.h"

namespace quire {

namespace {

std::string vision(const std::string& key) {
  return "clip.vision." + key;
}

std::string projector_of(const GgufFile& file) {
  for (const char* key : {"clip.vision.projector_type", "clip.projector_type"}) {
    if (const auto name = file.get_string(key)) return std::string(*name);
  }
  return {};
}

template <class Number>
std::vector<Number> list_of(const GgufValue& value) {
  return std::visit(
      [](const auto& from) -> std::vector<Number> {
        using From = std::decay_t<decltype(from)>;
        if constexpr (std::is_arithmetic_v<From>) {
          return {static_cast<Number>(from)};
        } else if constexpr (std::is_same_v<From, std::vector<std::uint64_t>> ||
                             std::is_same_v<From, std::vector<std::int64_t>> ||
                             std::is_same_v<From, std::vector<double>> || std::is_same_v<From, std::vector<bool>>) {
          std::vector<Number> out;
          for (const auto element : from)
            out.push_back(static_cast<Number>(element));
          return out;
        } else {
          return {};
        }
      },
      value);
}

}  // namespace

MmprojFile MmprojFile::open(const std::filesystem::path& path) {
  return MmprojFile(GgufFile::open(path));
}

MmprojFile::MmprojFile(std::shared_ptr<const GgufFile> file)
    : file_(std::move(file)), tensors_(gguf_tensor_table(*file_, file_->where())), projector_(projector_of(*file_)) {
  const auto architecture = file_->get_string("general.architecture");
  if (architecture != "clip")
    fail(fmt::format("not an mmproj file: general.architecture is '{}', an mmproj file has 'clip'",
                     architecture.value_or("")));
  if (!file_->get_bool("clip.has_vision_encoder").value_or(false))
    fail("the file has no tower for pictures (clip.has_vision_encoder is not true)");
  if (projector_.empty()) fail("the file names no projector (clip.projector_type)");
}

void MmprojFile::fail(const std::string& what) const {
  throw StartupError(fmt::format("{}: {}", where(), what));
}

std::int64_t MmprojFile::required_integer(const std::string& key) const {
  if (const auto value = file_->get_int(vision(key))) return *value;
  fail(fmt::format("the key '{}' is missing", vision(key)));
}

std::int64_t MmprojFile::integer(const std::string& key, std::int64_t otherwise) const {
  return file_->get_int(vision(key)).value_or(otherwise);
}

double MmprojFile::required_number(const std::string& key) const {
  if (const auto value = file_->get_float(vision(key))) return *value;
  fail(fmt::format("the key '{}' is missing", vision(key)));
}

std::vector<std::int64_t> MmprojFile::integers(const std::string& key) const {
  const GgufValue* value = file_->find(vision(key));
  return value == nullptr ? std::vector<std::int64_t>() : list_of<std::int64_t>(*value);
}

std::vector<double> MmprojFile::numbers(const std::string& key) const {
  const GgufValue* value = file_->find(vision(key));
  return value == nullptr ? std::vector<double>() : list_of<double>(*value);
}

bool MmprojFile::general_flag(const std::string& key) const {
  return file_->get_bool("clip." + key).value_or(false);
}

std::int64_t MmprojFile::general_integer(const std::string& key, std::int64_t otherwise) const {
  return file_->get_int("clip." + key).value_or(otherwise);
}

}  // namespace quire
