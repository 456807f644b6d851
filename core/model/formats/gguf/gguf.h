// GgufFile: a GGUF v2/v3 file mapped read-only; its metadata and tensor table, every count and offset checked before
// use. Immutable after construction; any thread. Source: the GGUF specification of ggml. Invariant: nothing is
// allocated in proportion to a number in the file that the file's own size does not justify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/model/formats/files/mapped_file.h"
#include "kernels/formats/dtype.h"

namespace quire {

// Arrays of strings are views into the mapping.
using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, std::vector<std::uint64_t>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string_view>>;

// The value as an integer, number, boolean or text, if it stands for exactly one: any width of integer, a real without
// a fraction, a boolean, digits in a string, "true" and "false", a list of a single element. Else nothing.
std::optional<std::int64_t> integer_of(const GgufValue& value);
std::optional<double> number_of(const GgufValue& value);
std::optional<bool> flag_of(const GgufValue& value);
bool is_list(const GgufValue& value);
// For messages: "the text 'abc'", "a list of 3".
std::string described(const GgufValue& value);

struct GgufTensor {
  std::string_view name;
  std::uint32_t ggml_type = 0;      // the file's number; see `type`
  std::optional<DType> type;        // absent: a type that Quire does not compute with
  std::vector<std::int64_t> shape;  // ggml order: shape[0] is the contiguous dimension
  std::span<const std::byte> data;  // empty if the type is unknown
};

class GgufFile {
 public:
  // Throws StartupError: one line with the path, the fault and its place.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  // Parses bytes in memory (tests, fuzzing); they must outlive the file.
  static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes, const std::string& name);
  virtual ~GgufFile() = default;

  virtual const std::map<std::string_view, GgufValue>& metadata() const = 0;
  virtual const std::vector<GgufTensor>& tensors() const = 0;
  virtual const GgufTensor* find_tensor(std::string_view name) const = 0;  // null: absent
  virtual std::uint32_t version() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  virtual std::vector<const MappedFile*> mappings() const { return {}; }  // all shards' mappings; empty: not a file
  // Drops the pages of a tensor's bytes from memory when they are not needed soon; reading them again maps them again.
  virtual void release(std::span<const std::byte> data) const = 0;

  virtual const std::string& where() const = 0;       // begins every message
  const GgufValue* find(std::string_view key) const;  // null: absent

  // Typed look-ups: nothing (null) if the key is absent. Throw StartupError naming the key if its value is of another
  // kind: such a key never counts as absent.
  std::optional<std::int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  const std::vector<std::string_view>* get_strings(std::string_view key) const;
};

// The file as one of all its shards, "<name>-00001-of-0000N.gguf", with the metadata of the first; each shard is
// present, its own metadata agree with its place, and no tensor is in two shards. Source: llama.cpp's split keys.
// Throws StartupError, one line, also if `path` is a later shard than the first.
std::shared_ptr<const GgufFile> open_gguf(const std::filesystem::path& path);

}  // namespace quire
