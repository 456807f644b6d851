#include "core/model/formats/gguf/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/ggml_types.h"

namespace quire {

namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

// Limits far above published files; a file at the limits costs tens of megabytes.
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 16;
constexpr std::uint64_t kMaxArrayElements = 1 << 24;
constexpr std::uint64_t kMaxElementsInAll = 1 << 25;
constexpr std::uint64_t kMaxKeyLength = 65535;
constexpr std::uint64_t kMaxTensorNameLength = 1024;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMinAlignment = 8;
constexpr std::int64_t kMaxAlignment = 1 << 20;

// Reads values front to back; every read is checked against the end of the file.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const { reject(fmt::format("{} (at byte {})", what, position_)); }
  [[noreturn]] void reject(const std::string& what) const {
    throw StartupError(fmt::format("{}: not a usable GGUF file: {}", name_, what));
  }
  [[noreturn]] void refuse_short(const std::string& part) const {
    fail(fmt::format("the file ends within {}: it is incomplete, download it again", part));
  }

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  template <class T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  std::string_view read_string(const char* what, std::uint64_t max_length) {
    const auto length = read<std::uint64_t>(what);
    if (length > max_length) fail(fmt::format("{} claims {} bytes, more than {}", what, length, max_length));
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<std::size_t>(length)};
  }

 private:
  const std::byte* take(std::uint64_t count, const char* what) {
    if (count > remaining()) refuse_short(fmt::format("{} ({} bytes wanted, {} left)", what, count, remaining()));
    const std::byte* at = bytes_.data() + position_;
    position_ += static_cast<std::size_t>(count);
    return at;
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::size_t position_ = 0;
};

class ValueReader {
 public:
  explicit ValueReader(Cursor& cursor) : cursor_(cursor) {}

  GgufValue read(std::string_view key) {
    key_ = key;
    const auto type = cursor_.read<std::uint32_t>("a value's type");
    return type == kGgufArray ? read_array() : read_scalar(type);
  }

 private:
  GgufValue read_scalar(std::uint32_t type) {
    switch (type) {
      case kGgufU8: return std::uint64_t{number<std::uint8_t>()};
      case kGgufU16: return std::uint64_t{number<std::uint16_t>()};
      case kGgufU32: return std::uint64_t{number<std::uint32_t>()};
      case kGgufU64: return number<std::uint64_t>();
      case kGgufI8: return std::int64_t{number<std::int8_t>()};
      case kGgufI16: return std::int64_t{number<std::int16_t>()};
      case kGgufI32: return std::int64_t{number<std::int32_t>()};
      case kGgufI64: return number<std::int64_t>();
      case kGgufF32: return double{number<float>()};
      case kGgufF64: return number<double>();
      case kGgufBool: return boolean();
      case kGgufString: return text();
      default: cursor_.fail(fmt::format("key '{}' has the unknown value type {}", printable(key_), type));
    }
  }

  GgufValue read_array() {
    const auto type = cursor_.read<std::uint32_t>("an array's type");
    const auto count = cursor_.read<std::uint64_t>("an array's length");
    switch (type) {
      case kGgufU8: return numbers<std::uint8_t, std::uint64_t>(count);
      case kGgufU16: return numbers<std::uint16_t, std::uint64_t>(count);
      case kGgufU32: return numbers<std::uint32_t, std::uint64_t>(count);
      case kGgufU64: return numbers<std::uint64_t, std::uint64_t>(count);
      case kGgufI8: return numbers<std::int8_t, std::int64_t>(count);
      case kGgufI16: return numbers<std::int16_t, std::int64_t>(count);
      case kGgufI32: return numbers<std::int32_t, std::int64_t>(count);
      case kGgufI64: return numbers<std::int64_t, std::int64_t>(count);
      case kGgufF32: return numbers<float, double>(count);
      case kGgufF64: return numbers<double, double>(count);
      case kGgufBool: return elements<bool>(count, 1, [&] { return boolean(); });
      case kGgufString: return elements<std::string_view>(count, sizeof(std::uint64_t), [&] { return text(); });
      case kGgufArray: cursor_.fail(fmt::format("key '{}' holds an array of arrays", printable(key_)));
      default: cursor_.fail(fmt::format("key '{}' holds an array of the unknown type {}", printable(key_), type));
    }
  }

  template <class T>
  T number() {
    return cursor_.read<T>("a value");
  }
  bool boolean() {
    const auto value = number<std::uint8_t>();
    if (value > 1) cursor_.fail(fmt::format("key '{}' holds the boolean {}", printable(key_), value));
    return value == 1;
  }
  std::string_view text() { return cursor_.read_string("a string", std::numeric_limits<std::uint64_t>::max()); }

  template <class Stored, class Wide>
  GgufValue numbers(std::uint64_t count) {
    return elements<Wide>(count, sizeof(Stored), [&] { return static_cast<Wide>(number<Stored>()); });
  }

  // The count is used only once the file is known to have at least that many bytes.
  template <class T, class ReadOne>
  GgufValue elements(std::uint64_t count, std::size_t min_bytes, const ReadOne& read_one) {
    if (count > kMaxArrayElements)
      cursor_.fail(fmt::format("key '{}' claims an array of {} elements", printable(key_), count));
    if (count > cursor_.remaining() / min_bytes)
      cursor_.refuse_short(fmt::format("the {} elements of the key '{}'", count, printable(key_)));
    num_elements_ += count;
    if (num_elements_ > kMaxElementsInAll)
      cursor_.fail(fmt::format("the arrays up to key '{}' are too long", printable(key_)));
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i)
      values.push_back(read_one());
    return values;
  }

  Cursor& cursor_;
  std::string_view key_;
  std::uint64_t num_elements_ = 0;
};

class ParsedFile final : public GgufFile {
 public:
  ParsedFile(std::span<const std::byte> bytes, const std::string& name, std::unique_ptr<MappedFile> mapping)
      : name_(name), mapping_(std::move(mapping)), bytes_(bytes) {
    Cursor cursor(bytes, name_);
    read_header(cursor);
    read_metadata(cursor);
    const std::vector<std::uint64_t> offsets = read_tensor_table(cursor);
    place_data(cursor, offsets);
    check_overlap(cursor);
  }

  const std::map<std::string_view, GgufValue>& metadata() const override { return metadata_; }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  std::uint32_t version() const override { return version_; }
  std::uint64_t file_bytes() const override { return bytes_.size(); }
  const std::string& where() const override { return name_; }

  std::vector<const MappedFile*> mappings() const override {
    return mapping_ ? std::vector<const MappedFile*>{mapping_.get()} : std::vector<const MappedFile*>{};
  }
  void release(std::span<const std::byte> data) const override {
    if (mapping_) mapping_->release(data);
  }

  const GgufTensor* find_tensor(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }

 private:
  void read_header(Cursor& cursor);
  void read_metadata(Cursor& cursor);
  std::vector<std::uint64_t> read_tensor_table(Cursor& cursor);
  GgufTensor read_tensor(Cursor& cursor, std::uint64_t& offset) const;
  void place_data(const Cursor& cursor, const std::vector<std::uint64_t>& offsets);
  void check_overlap(const Cursor& cursor) const;

  const std::string name_;
  std::unique_ptr<MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::uint32_t version_ = 0;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> by_name_;
};

void ParsedFile::read_header(Cursor& cursor) {
  if (const std::string other = other_format(bytes_, FileFormat::kGguf); !other.empty()) cursor.reject(other);
  if (cursor.read<std::uint32_t>("the magic number") != kGgufMagic) cursor.fail("it does not begin with 'GGUF'");
  version_ = cursor.read<std::uint32_t>("the version");
  if ((version_ & 0xFFFFU) == 0) cursor.fail("it is big-endian, which is not supported");
  if (version_ != 2 && version_ != 3) cursor.fail(fmt::format("version {} is not supported (2 and 3 are)", version_));
  num_tensors_ = cursor.read<std::uint64_t>("the number of tensors");
  num_keys_ = cursor.read<std::uint64_t>("the number of keys");
  if (num_tensors_ > kMaxTensors) cursor.fail(fmt::format("it claims {} tensors", num_tensors_));
  if (num_keys_ > kMaxKeys) cursor.fail(fmt::format("it claims {} metadata keys", num_keys_));
}

void ParsedFile::read_metadata(Cursor& cursor) {
  ValueReader values(cursor);
  for (std::uint64_t i = 0; i < num_keys_; ++i) {
    const std::string_view key = cursor.read_string("a key", kMaxKeyLength);
    if (key.empty()) cursor.fail("a metadata key is empty");
    if (metadata_.contains(key)) cursor.fail(fmt::format("the key '{}' occurs twice", printable(key)));
    metadata_.emplace(key, values.read(key));
  }
}

std::vector<std::uint64_t> ParsedFile::read_tensor_table(Cursor& cursor) {
  // The smallest entry: an empty name's length, no dimension, a type and an offset.
  constexpr std::size_t kMinEntryBytes = 24;
  if (num_tensors_ > cursor.remaining() / kMinEntryBytes) {
    cursor.fail(fmt::format("it claims {} tensors, more than its bytes can describe", num_tensors_));
  }
  std::vector<std::uint64_t> offsets;
  offsets.reserve(num_tensors_);
  tensors_.reserve(num_tensors_);
  for (std::uint64_t i = 0; i < num_tensors_; ++i) {
    std::uint64_t offset = 0;
    tensors_.push_back(read_tensor(cursor, offset));
    offsets.push_back(offset);
    if (!by_name_.emplace(tensors_.back().name, tensors_.size() - 1).second) {
      cursor.fail(fmt::format("the tensor '{}' occurs twice", printable(tensors_.back().name)));
    }
  }
  return offsets;
}

GgufTensor ParsedFile::read_tensor(Cursor& cursor, std::uint64_t& offset) const {
  GgufTensor tensor;
  tensor.name = cursor.read_string("a tensor's name", kMaxTensorNameLength);
  if (tensor.name.empty()) cursor.fail("a tensor has no name");
  const auto num_dims = cursor.read<std::uint32_t>("a tensor's number of dimensions");
  if (num_dims > kMaxDims)
    cursor.fail(fmt::format("tensor '{}' claims {} dimensions", printable(tensor.name), num_dims));
  std::uint64_t num_elements = 1;
  for (std::uint32_t d = 0; d < num_dims; ++d) {
    const auto dim = cursor.read<std::uint64_t>("a tensor's dimension");
    // Far above published files, and far below an overflow of sizes in bytes.
    constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 56;
    if (dim == 0 || dim > kMaxElements / num_elements) {
      cursor.fail(fmt::format("tensor '{}' claims the dimension {}", printable(tensor.name), dim));
    }
    num_elements *= dim;
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  if (tensor.shape.empty()) tensor.shape.push_back(1);
  tensor.ggml_type = cursor.read<std::uint32_t>("a tensor's type");
  tensor.type = dtype_of_ggml_type(tensor.ggml_type);
  if (tensor.type && tensor.shape[0] % dtype_info(*tensor.type).block_size != 0) {
    cursor.fail(fmt::format("tensor '{}' has rows of {} elements, not a multiple of {}'s block of {}",
                            printable(tensor.name), tensor.shape[0], dtype_info(*tensor.type).name,
                            dtype_info(*tensor.type).block_size));
  }
  offset = cursor.read<std::uint64_t>("a tensor's offset");
  return tensor;
}

void ParsedFile::place_data(const Cursor& cursor, const std::vector<std::uint64_t>& offsets) {
  std::int64_t alignment = kDefaultAlignment;
  if (const GgufValue* stated = find("general.alignment")) {
    alignment = integer_of(*stated).value_or(0);
    if (alignment < kMinAlignment || alignment > kMaxAlignment ||
        !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
      cursor.reject(fmt::format("general.alignment is not a power of two from {} to {}", kMinAlignment, kMaxAlignment));
    }
  }
  const auto unit = static_cast<std::size_t>(alignment);
  const std::size_t data_start = (cursor.position() + unit - 1) / unit * unit;
  const std::size_t data_bytes = bytes_.size() > data_start ? bytes_.size() - data_start : 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    GgufTensor& tensor = tensors_[i];
    const std::uint64_t offset = offsets[i];
    if (offset % unit != 0) {
      cursor.reject(fmt::format("tensor '{}' begins at {}, not a multiple of the alignment {}", printable(tensor.name),
                                offset, unit));
    }
    if (offset >= data_bytes) {
      cursor.reject(
          fmt::format("tensor '{}' begins at {} of {} bytes of data: the file is incomplete, download it again",
                      printable(tensor.name), offset, data_bytes));
    }
    if (!tensor.type) continue;
    const std::size_t size = dtype_bytes(*tensor.type, num_elements(tensor.shape));
    if (size > data_bytes - offset) {
      cursor.reject(
          fmt::format("tensor '{}' needs {} bytes and the file has {} left: it is incomplete, download it again",
                      printable(tensor.name), size, data_bytes - offset));
    }
    tensor.data = bytes_.subspan(data_start + static_cast<std::size_t>(offset), size);
  }
}

void ParsedFile::check_overlap(const Cursor& cursor) const {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.type) order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, [](const GgufTensor* tensor) { return tensor->data.data(); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data()) {
      cursor.reject(
          fmt::format("the tensors '{}' and '{}' overlap", printable(order[i - 1]->name), printable(order[i]->name)));
    }
  }
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_unique<MappedFile>(path);
  const std::span<const std::byte> bytes = mapping->bytes();
  return std::make_shared<ParsedFile>(bytes, path.string(), std::move(mapping));
}

std::shared_ptr<const GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  return std::make_shared<ParsedFile>(bytes, name, nullptr);
}

}  // namespace quire
