// Stored files on disk: limits, expiry, and the remains of unfinished uploads.
#include <catch2/catch.hpp>
#include <fstream>

#include "tests/server/batch/batch_folder.h"

using namespace quire;
using namespace quire::test;

namespace {

std::unique_ptr<BatchStore> open_store(const BatchFolder& folder) {
  auto store = std::make_unique<BatchStore>(folder.options);
  const auto is_open = store->open();
  REQUIRE((is_open && *is_open));
  return store;
}

void write_content(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace

TEST_CASE("files of one owner are bounded in number, and expire", "[batches]") {
  BatchFolder folder;
  folder.options.max_files_per_key = 2;
  const auto store = open_store(folder);
  const std::string first = put_file(*store, "x\n", "a", 100);
  put_file(*store, "x\n", "a", 500);
  const auto third = store->files().begin("a");
  REQUIRE_FALSE(third);
  CHECK(third.error().code == "too_many_files");
  CHECK(store->files().begin("b"));
  store->work(99);
  CHECK(store->files().find(first, "a") != nullptr);
  store->work(200);
  CHECK(store->files().find(first, "a") == nullptr);
  CHECK(store->files().begin("a"));
}

TEST_CASE("an upload that never ends leaves nothing", "[batches]") {
  const BatchFolder folder;
  {
    const auto store = open_store(folder);
    auto upload = store->files().begin("");
    REQUIRE(upload);
    REQUIRE((*upload)->write("half"));
    CHECK(store->counts().num_bytes > 0);
    upload->reset();
    CHECK(store->counts().num_bytes == 0);
    CHECK(std::filesystem::is_empty(folder.path / "files"));
  }
  // Leaves files like kill -9: a part, an unfinished description, content without a description.
  write_content(folder.path / "files" / "file-a.part", "half");
  write_content(folder.path / "files" / "file-b", "content");
  write_content(folder.path / "files" / "file-c.json.new", "{");
  const auto store = open_store(folder);
  CHECK(store->files().count() == 0);
  CHECK(std::filesystem::is_empty(folder.path / "files"));
}
