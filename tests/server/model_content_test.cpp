#include "server/fleet/model_content.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/base/result.h"
#include "server/models/running_model.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("a model is known by its files' bytes, not by their names and times") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
    return folder.path() / name;
  };
  const auto version = [](const std::filesystem::path& path) { return content_version(path, [] { return false; }); };
  const std::string bytes(5'000'000, 'a');
  const std::string first = version(write("a.gguf", bytes));
  CHECK(version(write("b.gguf", bytes)) == first);
  std::string other = bytes;
  other.back() = 'b';
  CHECK(version(write("a.gguf", other)) != first);
  CHECK(version(write("c.gguf", bytes + "a")) != first);
  // Another last shard is another model.
  const auto shard = write("m-00001-of-00002.gguf", "one");
  write("m-00002-of-00002.gguf", "two");
  const std::string sharded = version(shard);
  write("m-00002-of-00002.gguf", "twO");
  CHECK(version(shard) != sharded);
  write("n-00002-of-00002.gguf", "of another model");
  write("m-00002-of-00002.gguf", "two");
  CHECK(version(shard) == sharded);
  // In a directory the names count too.
  write("d/config.json", "x");
  write("d/model.safetensors", "y");
  write("e/config.json", "y");
  write("e/model.safetensors", "x");
  CHECK(version(folder.path() / "d") != version(folder.path() / "e"));
  CHECK_THROWS_AS(version(folder.path() / "none"), StartupError);
  CHECK_THROWS_AS(content_version(shard, [] { return true; }), Interrupted);
}
