// Differences that distinguish two models, and those that do not: contents, options, adapters; and remembered hashes.
#include "core/model/layers/model_identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "core/model/formats/files/known_contents.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/layers/checkpoint.h"
#include "kernels/registry.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/adapters/adapter_files.h"

using namespace quire;
using namespace quire::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

void write_tiny(const fs::path& path) {
  write_model("tiny-qwen2", "Q8_0", path);
}

ModelContent content(const fs::path& path, std::int64_t served_context = 0, const fs::path& folder = {}) {
  return ContentReading(open_model(path, false, {.served_context = served_context}), folder).wait();
}

// Changes a byte but neither the size nor the time of modification.
void change_byte(const fs::path& path, std::uintmax_t at) {
  struct stat before {};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  const timespec times[2] = {before.st_atim, before.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

// The shards of a file: metadata and the first tensors in the first, the other tensors in the second.
fs::path write_shards(const fs::path& model, const fs::path& folder) {
  const auto file = GgufFile::open(model);
  const std::size_t half = file->tensors().size() / 2;
  for (std::uint32_t number = 0; number < 2; ++number) {
    GgufWriter writer(folder / ("m-0000" + std::to_string(number + 1) + "-of-00002.gguf"));
    writer.set("general.architecture", text_of(*file, "general.architecture"));
    if (number == 0) {
      for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                              "attention.head_count", "attention.head_count_kv"})
        writer.set("qwen2." + std::string(key),
                   static_cast<std::uint32_t>(file->get_int("qwen2." + std::string(key)).value()));
      writer.set("qwen2.rope.freq_base", static_cast<float>(file->get_float("qwen2.rope.freq_base").value()));
      writer.set("qwen2.attention.layer_norm_rms_epsilon", 1e-6F);
    }
    writer.set("split.no", number);
    writer.set("split.count", std::uint32_t{2});
    const std::span<const GgufTensor> all = file->tensors();
    const auto own = number == 0 ? all.first(half) : all.subspan(half);
    for (const GgufTensor& tensor : own)
      writer.declare(std::string(tensor.name), tensor.shape, tensor.type.value());
    writer.begin_data();
    for (const GgufTensor& tensor : own)
      writer.append(tensor.data);
    writer.finish();
  }
  return folder / "m-00001-of-00002.gguf";
}

// The stamp of a file with reliable times, simulated on file systems without them.
FileStamp reliable(FileStamp stamp) {
  stamp.is_reliable = true;
  return stamp;
}

}  // namespace

TEST_CASE("a model is known by its files' bytes, not by their names, sizes and times", "[identity]") {
  const TemporaryFolder folder;
  write_tiny(folder / "a.gguf");
  const ModelContent first = content(folder / "a.gguf");
  fs::copy_file(folder / "a.gguf", folder / "b.gguf");
  CHECK(content(folder / "b.gguf") == first);
  const auto bytes = fs::file_size(folder / "b.gguf");
  for (const std::uintmax_t at : {bytes / 7, bytes / 3, bytes / 2, bytes - 1}) {
    change_byte(folder / "b.gguf", at);
    CHECK(content(folder / "b.gguf") != first);
    change_byte(folder / "b.gguf", at);
  }
  CHECK(content(folder / "b.gguf") == first);
}

TEST_CASE("every shard of a model counts", "[identity]") {
  const TemporaryFolder folder;
  write_tiny(folder / "model.gguf");
  const fs::path first = write_shards(folder / "model.gguf", folder.path());
  const ModelContent whole = content(first);
  const fs::path second = folder / "m-00002-of-00002.gguf";
  change_byte(second, fs::file_size(second) - 100);
  CHECK(content(first) != whole);
}

TEST_CASE("in a directory the weights, the configuration and the tokenizer count", "[identity]") {
  QUIRE_REQUIRE_MATERIAL(given, "weights/TinyStories-656K-hf");
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  fs::copy(given, model, fs::copy_options::recursive);
  for (const auto& entry : fs::recursive_directory_iterator(model))
    fs::permissions(entry.path(), fs::perms::owner_all);
  const ModelContent first = content(model);
  for (const char* name : {"tokenizer.json", "config.json"}) {
    const auto before = fs::file_size(model / name);
    std::ofstream(model / name, std::ios::app) << ' ';
    CHECK(content(model) != first);
    fs::resize_file(model / name, before);
  }
  std::ofstream(model / "NOTES.txt") << "of no meaning";
  CHECK(content(model) == first);
  change_byte(model / "model.safetensors", fs::file_size(model / "model.safetensors") - 9);
  CHECK(content(model) != first);
}

TEST_CASE("factors of LongRoPE are part of a model's content, the served context alone is not", "[identity]") {
  QUIRE_REQUIRE_MATERIAL(path, "architectures/given/phi3-long/model.gguf");
  const auto file = GgufFile::open(path);
  const std::int64_t original = file->get_int("phi3.rope.scaling.original_context_length").value();
  const ModelContent longer = content(path);
  const ModelContent shorter = content(path, original);
  CHECK(longer.files == shorter.files);
  CHECK(longer != shorter);
  CHECK(content(path, original / 2) == shorter);
  CHECK(content(path, original + 1) == longer);
}

TEST_CASE("each part of an identity makes another key", "[identity]") {
  const ModelIdentity first{.model = {"files", "options"}, .arithmetic = "cpu/avx2", .block_size = 16};
  std::vector<ModelIdentity> others(8, first);
  others[1].model.files = "others";
  others[2].model.options = "others";
  others[3].draft_model.files = "drafter";
  others[4].arithmetic = "cpu/avx512";
  others[5].block_size = 32;
  others[6].cache_type = KvDType::kI8;
  others[7].has_window_parts = true;
  std::set<std::string> keys;
  std::set<std::string> texts;
  for (const ModelIdentity& each : others) {
    keys.insert(hex_digits(each.key()));
    texts.insert(packed_identity(each.model, "panels"));
  }
  CHECK(keys.size() == others.size());
  CHECK(texts.size() == 3);  // packed weights do not depend on blocks
  CHECK(packed_identity(first.model, "other panels") != packed_identity(first.model, "panels"));
  CHECK(private_content() != private_content());
}

TEST_CASE("an adapter is known by its weights and by the scale that is used", "[identity][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen2", "Q8_0", folder / "model.gguf");
  const auto model = open_model(folder / "model.gguf", false);
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const auto key_of = [&](const std::string& name) {
    return read_adapter(folder / name, model->checkpoint().spec, *backend, 64)->content_key();
  };
  const auto changes = changes_of(file, 1, 4);
  const auto write_config = [&](const std::string& name, const std::string& members) {
    write_peft(changes, folder / name);
    std::ofstream(folder / name / "adapter_config.json")
        << R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], )" << members << "}";
  };
  // All have rank 4: 16 / 4 is used, 16 / sqrt(4), then the first two scales again, written differently.
  write_config("plain", R"("lora_alpha": 16)");
  write_config("root", R"("lora_alpha": 16, "use_rslora": true)");
  write_config("same as plain", R"("lora_alpha": 8, "use_rslora": true)");
  write_config("same as root", R"("lora_alpha": 32)");
  CHECK(key_of("plain") != key_of("root"));
  CHECK(key_of("plain") == key_of("same as plain"));
  CHECK(key_of("root") == key_of("same as root"));
  const auto changed = std::ranges::find(changes, "blk.0.attn_q.weight", &Change::name);
  REQUIRE(changed != changes.end());
  const auto write_gguf = [&](const std::string& name, float alpha, std::int64_t rank, unsigned seed = 1) {
    GgufWriter writer(folder / name);
    writer.set("general.type", "adapter");
    writer.set("general.architecture", text_of(*file, "general.architecture"));
    writer.set("adapter.type", "lora");
    writer.set("adapter.lora.alpha", alpha);
    const Change change = random_change(changed->name, changed->inputs, changed->outputs, rank, 0, seed);
    const std::int64_t down[] = {change.inputs, change.rank};
    const std::int64_t up[] = {change.rank, change.outputs};
    writer.declare(change.name + ".lora_a", down, DType::kF32);
    writer.declare(change.name + ".lora_b", up, DType::kF32);
    writer.begin_data();
    writer.append(std::as_bytes(std::span(change.down)));
    writer.append(std::as_bytes(std::span(change.up)));
    writer.finish();
  };
  write_gguf("zero.gguf", 0.0F, 4);  // alpha 0: the change is not scaled
  write_gguf("one.gguf", 1.0F, 4);
  write_gguf("four.gguf", 4.0F, 4);
  write_gguf("other.gguf", 1.0F, 4, 2);
  CHECK(key_of("zero.gguf") != key_of("one.gguf"));
  CHECK(key_of("zero.gguf") == key_of("four.gguf"));
  CHECK(key_of("other.gguf") != key_of("one.gguf"));
}

TEST_CASE("a hash of several threads is that of a writer's pieces", "[identity]") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kHashedPiece, 3 * kHashedPiece + 17}) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<std::byte>(i * 2654435761U >> 11);
    ContentDigest digest;
    for (std::size_t at = 0; at < size; at += kHashedPiece)
      digest.add_piece(std::span(bytes).subspan(at, std::min(kHashedPiece, size - at)));
    const ContentHash whole = hash_content(bytes);
    CHECK(digest.finish() == whole);
    if (size == 0) continue;
    bytes[size / 2] ^= std::byte{1};
    CHECK(hash_content(bytes) != whole);
  }
}

TEST_CASE("a hash is remembered for the very file and time of change", "[identity]") {
  const TemporaryFolder folder;
  folder.write("model", "bytes");
  const FileStamp stamp = reliable(stamp_of(folder / "model").value());
  const ContentHash hash{1, 2};
  KnownContents(folder.path()).remember(stamp, hash);
  CHECK(KnownContents(folder.path()).find(stamp) == hash);
  CHECK_FALSE(KnownContents({}).find(stamp));
  std::vector<FileStamp> others(7, stamp);
  ++others[0].system;
  ++others[1].device;
  ++others[2].inode;
  ++others[3].size;
  ++others[4].modified;
  ++others[5].changed;
  ++others[6].born;
  for (const FileStamp& other : others)
    CHECK_FALSE(KnownContents(folder.path()).find(other));
  FileStamp unreliable = stamp;
  unreliable.is_reliable = false;
  CHECK_FALSE(KnownContents(folder.path()).find(unreliable));
  KnownContents(folder.path()).remember(others[0], {3, 4});
  const KnownContents both(folder.path());
  CHECK(both.find(stamp) == hash);
  CHECK(both.last_use(stamp) < both.last_use(others[0]));
  // A bit that changes on the disk invalidates the line.
  change_byte(folder / "content-hashes", 3);
  CHECK_FALSE(KnownContents(folder.path()).find(stamp));
  CHECK(KnownContents(folder.path()).find(others[0]));
}

TEST_CASE("a file that may still change under the same stamp is not settled", "[identity]") {
  const TemporaryFolder folder;
  folder.write("model", "bytes");
  FileStamp stamp = stamp_of(folder / "model").value();
  if (!stamp.is_reliable) return;  // for example on tmpfs
  CHECK_FALSE(settle(folder / "model", stamp, stamp.changed));
  CHECK_FALSE(settle(folder / "model", stamp, stamp.changed - kSecond));
  CHECK(settle(folder / "model", stamp, stamp.changed + 3 * kSecond));
  CHECK_FALSE(settle(folder / "none", stamp, stamp.changed + 3 * kSecond));
  change_byte(folder / "model", 2);
  const FileStamp changed = stamp_of(folder / "model").value();
  CHECK(changed.modified == stamp.modified);
  CHECK(changed != stamp);
  CHECK_FALSE(settle(folder / "model", stamp, changed.changed + 3 * kSecond));
}

TEST_CASE("a remembered content is that of the file as it is", "[identity]") {
  const TemporaryFolder folder;
  write_tiny(folder / "model.gguf");
  const auto read = [&] { return content(folder / "model.gguf", 0, folder / "known"); };
  const ModelContent first = read();
  CHECK(read() == first);
  change_byte(folder / "model.gguf", fs::file_size(folder / "model.gguf") / 2);
  const ModelContent second = read();
  CHECK(second != first);
  CHECK(second == content(folder / "model.gguf"));
  // Another file of the same size and time, moved over the first.
  write_tiny(folder / "other.gguf");
  struct stat other {};
  REQUIRE(::stat((folder / "model.gguf").c_str(), &other) == 0);
  const timespec times[2] = {other.st_atim, other.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, (folder / "other.gguf").c_str(), times, 0) == 0);
  fs::rename(folder / "other.gguf", folder / "model.gguf");
  CHECK(read() == first);
}

TEST_CASE("a remembered hash of a file is that of its bytes", "[identity]") {
  const TemporaryFolder folder;
  const fs::path path = folder / "tower.gguf";
  write_tiny(path);
  const auto read = [&] { return content_of(path, folder / "known"); };
  const ContentHash first = content_of(path, {});
  CHECK(read() == first);
  // The hash is kept once the file is so old that no later write can leave the same stamp; never on tmpfs, for example.
  const auto stamp = stamp_of(path);
  REQUIRE(stamp.has_value());
  while (stamp->is_reliable && !fs::exists(folder / "known"))
    REQUIRE(read() == first);
  CHECK(read() == first);
  change_byte(path, fs::file_size(path) / 2);
  const ContentHash second = content_of(path, {});
  CHECK(second != first);
  CHECK(read() == second);
}
