#include "server/hub/ollama_store.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/result.h"

using namespace quire;
using namespace quire::hub;
namespace fs = std::filesystem;

namespace {

// A store in a folder of its own, removed at the end.
class Store {
 public:
  Store() : folder_(fs::temp_directory_path() / ("quire-ollama-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_ / "manifests");
  }
  ~Store() { fs::remove_all(folder_); }
  const fs::path& folder() const { return folder_; }

  fs::path blob(char digit, std::size_t size) const {
    const fs::path path = folder_ / "blobs" / ("sha256-" + std::string(64, digit));
    fs::create_directories(path.parent_path());
    std::ofstream(path) << std::string(size, 'x');
    return path;
  }
  void manifest(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / "manifests" / name).parent_path());
    std::ofstream(folder_ / "manifests" / name) << text;
  }

 private:
  fs::path folder_;
};

std::string layer(const std::string& kind, char digit) {
  return R"({"mediaType": "application/vnd.ollama.image.)" + kind + R"(", "digest": "sha256:)" +
         std::string(64, digit) + R"("})";
}

std::string layers(const std::string& list) {
  return R"({"schemaVersion": 2, "layers": [)" + list + "]}";
}

}  // namespace

TEST_CASE("models of Ollama's store are found under the names that it shows") {
  const Store store;
  const fs::path small = store.blob('a', 7);
  const fs::path large = store.blob('b', 9);
  store.manifest("registry.ollama.ai/library/llama3.2/1b", layers(layer("template", 'c') + "," + layer("model", 'a')));
  store.manifest("registry.ollama.ai/library/qwen3/latest", layers(layer("model", 'b')));
  store.manifest("registry.ollama.ai/someone/own/v1", layers(layer("model", 'a')));
  store.manifest("hf.co/owner/name/Q8_0", layers(layer("model", 'b')));
  const OllamaStore read = read_ollama_store(store.folder());
  CHECK(read.complaints.empty());
  REQUIRE(read.models.size() == 4);
  CHECK(read.models[0].name == "hf.co/owner/name:Q8_0");
  CHECK(read.models[1].name == "llama3.2:1b");
  CHECK(read.models[1].path == small);
  CHECK(read.models[1].num_bytes == 7);
  CHECK(read.models[2].name == "qwen3:latest");
  CHECK(read.models[2].path == large);
  CHECK(read.models[3].name == "someone/own:v1");
  CHECK(serving_configuration({read.models[2]}) == "models:\n  - name: \"qwen3:latest\"\n    path: \"" +
                                                       large.string() +
                                                       "\"\n    preload: false\n    sleep_after: 5m\n"
                                                       "    aliases: [\"qwen3\"]\n");
}

TEST_CASE("what cannot be served from Ollama's store is named, and a digest leads nowhere else") {
  const Store store;
  store.blob('a', 7);
  const std::string library = "registry.ollama.ai/library/";
  store.manifest(library + "adapted/1", layers(layer("model", 'a') + "," + layer("adapter", 'a')));
  store.manifest(library + "empty/1", layers(""));
  store.manifest(library + "gone/1", layers(layer("model", 'd')));
  store.manifest(library + "odd/1", "[]");
  store.manifest(library + "outside/1", layers(R"({"mediaType": "x.image.model", "digest": "sha256:../../secret"})"));
  store.manifest(library + "torn/1", "{");
  store.manifest("too/short", layers(layer("model", 'a')));
  const OllamaStore read = read_ollama_store(store.folder());
  CHECK(read.models.empty());
  REQUIRE(read.complaints.size() == 6);
  CHECK_THAT(read.complaints[0], Catch::Contains("adapted:1 has an adapter"));
  CHECK_THAT(read.complaints[1], Catch::Contains("empty:1 has no GGUF file"));
  CHECK_THAT(read.complaints[2], Catch::Contains("gone:1 lacks its file"));
  CHECK_THAT(read.complaints[3], Catch::Contains("odd:1 has a manifest"));
  CHECK_THAT(read.complaints[4], Catch::Contains("outside:1 has several files, or a digest"));
  CHECK_THAT(read.complaints[5], Catch::Contains("torn:1 has a manifest"));
  CHECK_THROWS_AS(read_ollama_store(store.folder() / "nowhere"), StartupError);
}
