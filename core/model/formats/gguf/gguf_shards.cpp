#include "core/model/formats/gguf/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/files/mapped_file.h"

namespace quire {

namespace {

constexpr std::int64_t kMaxShards = 99999;

class ShardedFile final : public GgufFile {
 public:
  ShardedFile(std::vector<std::shared_ptr<const GgufFile>> shards, const std::string& name)
      : shards_(std::move(shards)) {
    for (const auto& shard : shards_) {
      bytes_ += shard->file_bytes();
      tensors_.insert(tensors_.end(), shard->tensors().begin(), shard->tensors().end());
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!by_name_.emplace(tensors_[i].name, i).second)
        throw StartupError(fmt::format("{}: the tensor '{}' is in two shards", name, printable(tensors_[i].name)));
    }
  }

  const std::map<std::string_view, GgufValue>& metadata() const override { return shards_.front()->metadata(); }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  std::uint32_t version() const override { return shards_.front()->version(); }
  std::uint64_t file_bytes() const override { return bytes_; }
  std::vector<const MappedFile*> mappings() const override {
    std::vector<const MappedFile*> all;
    for (const auto& shard : shards_) {
      const auto mappings = shard->mappings();
      all.insert(all.end(), mappings.begin(), mappings.end());
    }
    return all;
  }
  const std::string& where() const override { return shards_.front()->where(); }
  void release(std::span<const std::byte> data) const override {
    for (const auto& shard : shards_) {
      const bool holds = std::ranges::any_of(shard->tensors(), [&](const GgufTensor& tensor) {
        return data.data() >= tensor.data.data() && data.data() < tensor.data.data() + tensor.data.size();
      });
      if (holds) return shard->release(data);
    }
  }

 private:
  std::vector<std::shared_ptr<const GgufFile>> shards_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> by_name_;
  std::uint64_t bytes_ = 0;
};

std::string shard_ending(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// The path of shard `number`, counted from 1, beside the open one.
std::filesystem::path sibling(const std::filesystem::path& path, std::int64_t own, std::int64_t number,
                              std::int64_t count) {
  std::string name = path.filename().string();
  const std::string ending = shard_ending(own, count);
  if (!name.ends_with(ending)) {
    throw StartupError(
        fmt::format("{}: it is shard {} of {} and its name does not end with '{}': the others cannot be found",
                    path.string(), own, count, ending));
  }
  name.resize(name.size() - ending.size());
  return path.parent_path() / (name + shard_ending(number, count));
}

void check_shard(const GgufFile& shard, const std::string& where, std::int64_t number, std::int64_t count) {
  const std::int64_t own_number = shard.get_int("split.no").value_or(-2) + 1;
  const std::int64_t own_count = shard.get_int("split.count").value_or(-1);
  if (own_number != number || own_count != count) {
    throw StartupError(fmt::format("{}: it says that it is shard {} of {}, and its name that it is {} of {}", where,
                                   own_number, own_count, number, count));
  }
}

}  // namespace

std::shared_ptr<const GgufFile> open_gguf(const std::filesystem::path& path) {
  auto first = GgufFile::open(path);
  const std::int64_t count = first->get_int("split.count").value_or(0);
  if (count <= 1) return first;
  const std::string where = path.string();
  if (count > kMaxShards) throw StartupError(fmt::format("{}: 'split.count' is {}", where, count));
  const std::int64_t own = first->get_int("split.no").value_or(0) + 1;
  if (own != 1) {
    throw StartupError(fmt::format("{}: it is shard {} of {}; give the path of the first, {}", where, own, count,
                                   sibling(path, own, 1, count).string()));
  }
  std::vector<std::shared_ptr<const GgufFile>> shards{first};
  for (std::int64_t number = 2; number <= count; ++number) {
    const std::filesystem::path next = sibling(path, own, number, count);
    if (!is_there(next))
      throw StartupError(
          fmt::format("{}: is missing: it is shard {} of the {} that {} needs", next.string(), number, count, where));
    shards.push_back(GgufFile::open(next));
    check_shard(*shards.back(), next.string(), number, count);
  }
  auto all = std::make_shared<const ShardedFile>(std::move(shards), where);
  const auto stated = first->get_int("split.tensors.count");
  if (stated && *stated != std::ssize(all->tensors())) {
    throw StartupError(fmt::format("{}: its shards hold {} tensors, and 'split.tensors.count' is {}", where,
                                   all->tensors().size(), *stated));
  }
  return all;
}

}  // namespace quire
