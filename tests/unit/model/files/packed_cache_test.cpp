// Weights packed once and kept: the same model from the cache; no fault of the cache stops a start.
#include "core/model/layers/packed_cache.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>

#include "core/model/tools/synth.h"
#include "tests/support/huge_pages.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_runner.h"

namespace quire::test {
namespace {

std::shared_ptr<const LoadedModel> write_model(const TemporaryFolder& folder, const std::string& name,
                                               std::uint64_t seed) {
  SynthSpec spec = find_synth_shape("tiny-qwen2").value();
  spec.types = find_synth_types("Q8_0").value();
  spec.seed = seed;
  write_synthetic_gguf(spec, folder / name, {});
  return open_model(folder / name);
}

Logits logits_with(const LoadedModel& model, const PackedCacheOptions& cache) {
  ModelRunner runner(model, "scalar", KvDType::kF16, 1, cache);
  const std::vector<std::int32_t> ids = {5, 17, 300, 2};
  return runner.append(ids);
}

constexpr std::int64_t kBound = std::int64_t{1} << 30;

// Lists the files except for the remembered hashes.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (entry.path().filename() != "content-hashes") files.push_back(entry.path());
  }
  return files;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace

TEST_CASE("A model built from the cache of packed weights gives the same bits", "[model]") {
  const TemporaryFolder folder;
  const auto model = write_model(folder, "model.gguf", 1);
  const PackedCacheOptions cache{.folder = folder / "cache"};
  const Logits plain = logits_with(*model, {});
  CHECK(logits_with(*model, cache) == plain);
  const auto files = files_in(cache.folder);
  REQUIRE(files.size() == 1);
  const auto written = std::filesystem::last_write_time(files[0]);
  CHECK(logits_with(*model, cache) == plain);
  CHECK(files_in(cache.folder) == files);
  CHECK(std::filesystem::last_write_time(files[0]) == written);
}

TEST_CASE("Packed weights of another content are not taken", "[model]") {
  const TemporaryFolder folder;
  const auto first = write_model(folder, "first.gguf", 1);
  const auto second = write_model(folder, "second.gguf", 2);
  const auto cache_of = [&](const char* files, const char* options) {
    return PackedCacheOptions{.folder = folder / "cache", .model = {files, options}};
  };
  logits_with(*first, cache_of("first", ""));
  // The second model has the same shapes.
  CHECK(logits_with(*second, cache_of("second", "")) == logits_with(*second, {}));
  CHECK(files_in(folder / "cache").size() == 2);
  logits_with(*first, cache_of("first", "other options"));
  CHECK(files_in(folder / "cache").size() == 3);
}

TEST_CASE("A damaged cache of packed weights is replaced", "[model]") {
  const TemporaryFolder folder;
  const auto model = write_model(folder, "model.gguf", 1);
  const PackedCacheOptions cache{.folder = folder / "cache"};
  const Logits plain = logits_with(*model, cache);
  const auto file = files_in(cache.folder).at(0);
  const auto whole = std::filesystem::file_size(file);
  for (const std::uintmax_t size : {whole - 1, whole / 2, std::uintmax_t{1}}) {
    std::filesystem::resize_file(file, size);
    CHECK(logits_with(*model, cache) == plain);
    CHECK(std::filesystem::file_size(file) == whole);
  }
  // Changes a byte among the weights and restores the time of modification.
  for (const std::uintmax_t at : {whole / 5, whole / 2}) {
    const auto before = std::filesystem::last_write_time(file);
    {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.write("\x55\x55\x55\x55", 4);
    }
    std::filesystem::last_write_time(file, before);
    CHECK(logits_with(*model, cache) == plain);
  }
}

TEST_CASE("A cache of packed weights that cannot be written stops nothing", "[model]") {
  const TemporaryFolder folder;
  const auto model = write_model(folder, "model.gguf", 1);
  folder.write("file", "not a folder");
  CHECK(logits_with(*model, {.folder = folder / "file"}) == logits_with(*model, {}));
}

TEST_CASE("Writers of packed weights do not disturb each other, and one that stops leaves nothing", "[model]") {
  const TemporaryFolder folder;
  const PackedCache cache(folder / "cache", "identity", kBound);
  const auto entry = bytes_of("packed");
  {
    const auto abandoned = cache.create();
    abandoned->add(entry);
    const auto first = cache.create();
    const auto second = cache.create();
    first->add(entry);
    second->add(entry);
    CHECK(cache.open(1) == nullptr);
    CHECK(first->finish().empty());
    const auto mapped = cache.open(1);
    REQUIRE(mapped != nullptr);
    CHECK(second->finish().empty());
    CHECK(std::ranges::equal((*mapped)[0], entry));
  }
  CHECK(files_in(folder / "cache") == std::vector<std::filesystem::path>{cache.path()});
  CHECK(cache.open(1) != nullptr);
  CHECK(cache.open(2) == nullptr);
}

TEST_CASE("Packed weights of any size come back as they were, each at a page of its own", "[model]") {
  const TemporaryFolder folder;
  const PackedCache cache(folder.path(), "identity", kBound);
  // Sizes below and above those of a single write.
  std::vector<std::vector<std::byte>> entries;
  for (const std::size_t size : {1U, 4096U, 1'800'000U, 9'000'001U, 5U, 4'194'304U}) {
    auto& entry = entries.emplace_back(size);
    for (std::size_t i = 0; i < size; ++i)
      entry[i] = static_cast<std::byte>((i * 2654435761U + size) >> 7);
  }
  const auto writer = cache.create();
  for (const auto& entry : entries)
    writer->add(entry);
  REQUIRE(writer->finish().empty());
  const auto mapped = cache.open(entries.size());
  REQUIRE(mapped != nullptr);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CHECK(std::ranges::equal((*mapped)[i], entries[i]));
    CHECK(reinterpret_cast<std::uintptr_t>((*mapped)[i].data()) % 4096 == 0);
    if (has_huge_pages()) CHECK(wants_huge_pages((*mapped)[i].data()));
  }
}

TEST_CASE("Every byte of the table and identity of packed weights counts", "[model]") {
  const TemporaryFolder folder;
  const PackedCache cache(folder.path(), "identity", kBound);
  const auto writer = cache.create();
  writer->add(bytes_of("some weights"));
  REQUIRE(writer->finish().empty());
  std::ifstream file(cache.path(), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  int accepted = 0;
  for (std::size_t at = std::strlen("some weights"); at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    std::ofstream(cache.path(), std::ios::binary) << bad;
    accepted += cache.open(1) != nullptr ? 1 : 0;
  }
  CHECK(accepted == 0);
}

TEST_CASE("Every byte of packed weights is checked before they are mapped for use", "[model]") {
  const TemporaryFolder folder;
  const PackedCache cache(folder / "cache", "identity", kBound);
  const std::vector<std::byte> entry(3 * kHashedPiece + 5, std::byte{7});
  const auto writer = cache.create();
  writer->add(entry);
  REQUIRE(writer->finish().empty());
  CHECK(cache.open(1) != nullptr);
  // A copy, as a backup is restored.
  std::filesystem::copy_file(cache.path(), folder / "copy");
  std::filesystem::rename(folder / "copy", cache.path());
  CHECK(cache.open(1) != nullptr);
  CHECK(cache.open(1) != nullptr);
  for (const std::size_t at : {std::size_t{0}, kHashedPiece + 1, entry.size() - 1}) {
    std::fstream file(cache.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(8);
    file.flush();
    CHECK(cache.open(1) == nullptr);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(7);
    file.close();
    CHECK(cache.open(1) != nullptr);
  }
}

TEST_CASE("A folder of packed weights stays within its bound: the least recently used leave first", "[model]") {
  const TemporaryFolder folder;
  constexpr std::size_t kEntry = 100'000;
  constexpr std::int64_t kTwo = 250'000;  // files of one such entry
  const std::vector<std::byte> entry(kEntry);
  const auto cache_of = [&](const std::string& name) { return PackedCache(folder / "cache", name, kTwo); };
  const auto write = [&](const std::string& name) {
    const auto writer = cache_of(name).create(kEntry);
    REQUIRE(writer != nullptr);
    writer->add(entry);
    CHECK(writer->finish().empty());
  };
  const auto has = [&](const std::string& name) { return std::filesystem::exists(cache_of(name).path()); };
  write("a");
  write("b");
  CHECK((has("a") && has("b")));
  // An older time makes "a" the first to leave on every file system.
  std::filesystem::last_write_time(cache_of("a").path(),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  write("c");
  CHECK_FALSE(has("a"));
  CHECK((has("b") && has("c")));
  // Weights that do not fit at all are refused, and others stay.
  CHECK(cache_of("large").create(kTwo + 1) == nullptr);
  const auto writer = cache_of("larger than said").create(1);
  for (int i = 0; i < 3; ++i)
    writer->add(entry);
  CHECK_THAT(writer->finish(), Catch::Contains("model.packed_cache_bytes"));
  CHECK((has("b") && has("c")));
}

TEST_CASE("The file of a writer that died is removed, those of live writers and other files stay", "[model]") {
  const TemporaryFolder folder;
  const PackedCache cache(folder / "cache", "identity", kBound);
  const auto alive = cache.create();
  const std::string dead = cache.path().filename().string() + ".Ab12Cd";
  folder.write("cache/" + dead, "a part");
  folder.write("cache/notes.Ab12Cd", "of another program");
  CHECK(cache.open(1) == nullptr);
  CHECK_FALSE(std::filesystem::exists(folder / "cache" / dead));
  CHECK(std::filesystem::exists(folder / "cache/notes.Ab12Cd"));
  alive->add(bytes_of("packed"));
  CHECK(alive->finish().empty());
  CHECK(cache.open(1) != nullptr);
}

}  // namespace quire::test
