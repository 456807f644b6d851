#include "server/fleet/model_content.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdio>
#include <memory>
#include <set>
#include <vector>

#include "core/base/result.h"
#include "server/models/running_model.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHashedAtOnce = std::size_t{4} << 20;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct StateFreer {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::string hash_of(const fs::path& path, std::vector<char>& buffer, const std::function<bool()>& interrupted) {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  const std::unique_ptr<XXH3_state_t, StateFreer> state(XXH3_createState());
  if (file == nullptr || state == nullptr) throw StartupError(path.string() + " cannot be read");
  XXH3_128bits_reset(state.get());
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    if (interrupted()) throw Interrupted{};
    XXH3_128bits_update(state.get(), buffer.data(), size);
  }
  if (std::ferror(file.get()) != 0) throw StartupError(path.string() + " cannot be read");
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// "name-00001-of-00003.gguf" is one of three.
std::set<fs::path> shards_of(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t end = name.rfind("-of-");
  if (end == std::string::npos || end < 6) return {path};
  const std::string before = name.substr(0, end - 5);
  const std::string after = name.substr(end);
  std::set<fs::path> shards = {path};
  for (const auto& entry : fs::directory_iterator(fs::absolute(path).parent_path())) {
    const std::string other = entry.path().filename().string();
    if (other.size() == name.size() && other.starts_with(before) && other.ends_with(after))
      shards.insert(path.parent_path() / other);
  }
  return shards;
}

}  // namespace

std::string content_version(const fs::path& path, const std::function<bool()>& interrupted) {
  std::vector<char> buffer(kHashedAtOnce);
  std::string version;
  if (!fs::is_directory(path)) {
    for (const fs::path& shard : shards_of(path))
      version += hash_of(shard, buffer, interrupted) + '\n';
    return version;
  }
  std::set<fs::path> files;  // in an order that does not depend on the file system
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) files.insert(entry.path());
  }
  for (const fs::path& file : files)
    version += file.filename().string() + ' ' + hash_of(file, buffer, interrupted) + '\n';
  return version;
}

}  // namespace quire
