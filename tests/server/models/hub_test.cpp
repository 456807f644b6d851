// Models by name: references, the choice of files, the cache, redirects. The network's part is e2e/models/hub.test.mjs.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "server/client/http_url.h"
#include "server/hub/checksum.h"
#include "server/hub/file_choice.h"
#include "server/hub/hub_cache.h"
#include "server/models/model_reference.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::hub;

namespace fs = std::filesystem;

namespace {

const std::string kCommit(40, 'a');
const std::string kSum(64, 'b');

std::vector<std::string> chosen(const std::vector<std::string>& paths, std::string_view wanted = "") {
  const auto files = choose_files(paths, wanted);
  return files ? files->paths : std::vector<std::string>{files.error().message};
}

using Paths = std::vector<std::string>;

}  // namespace

TEST_CASE("a model's name has a repository, a revision and a quantisation") {
  const auto whole = parse_reference("https://huggingface.co/Owner/Name-1.5_GGUF@refs/pr/2:Q4_K_M");
  REQUIRE(whole);
  CHECK(whole->repository == "Owner/Name-1.5_GGUF");
  CHECK(whole->revision == "refs/pr/2");
  CHECK(whole->wanted == "Q4_K_M");
  CHECK(whole->text() == "Owner/Name-1.5_GGUF@refs/pr/2:Q4_K_M");
  CHECK(parse_reference("hf.co/a/b")->text() == "a/b");
  CHECK(parse_reference("a/b@main:x/y-00001-of-00002.gguf")->text() == "a/b:x/y-00001-of-00002.gguf");
  for (const char* bad : {"",       "a",       "a/",    "/b",     "a/b/c",  "a/b:",     "a/b@",   "../b",
                          "a/..",   ".a/b",    "-a/b",  "a/b--c", "a b/c",  "a/b@../c", "a/b@/c", "a/b:../c",
                          "a/b:/c", "a/b:c d", "a/b?x", "a/b#x",  "a/b%2e", "ftp://a/b"}) {
    INFO(bad);
    CHECK_FALSE(parse_reference(bad));
  }
}

TEST_CASE("the usual quantisation is taken where none is wanted") {
  CHECK(chosen({"m-q8_0.gguf", "m-Q4_K_M.gguf", "m-f16.gguf"}) == Paths{"m-Q4_K_M.gguf"});
  CHECK(chosen({"m.F16.gguf", "m.Q8_0.gguf"}) == Paths{"m.Q8_0.gguf"});
  CHECK(chosen({"b.gguf", "a.gguf", "mmproj-a.gguf", "a.imatrix.gguf"}) == Paths{"a.gguf", "mmproj-a.gguf"});
  CHECK(chosen({"m-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-m-f16.gguf", "x/mmproj-F32.gguf"}) ==
        Paths{"m-Q8_0.gguf", "mmproj-m-f16.gguf"});
  CHECK(chosen({"Q8_0/m-Q8_0.gguf", "Q8_0/mmproj.gguf", "mmproj-F16.gguf"}) ==
        Paths{"Q8_0/m-Q8_0.gguf", "Q8_0/mmproj.gguf"});
  CHECK(chosen({"m-Q8_0.gguf", "mmproj-F16.gguf"}, "mmproj-f16.gguf") == Paths{"mmproj-F16.gguf"});
  CHECK(chosen({"m-UD-Q4_K_XL.gguf", "m-Q4_K_XL.gguf"}, "q4_k_xl") == Paths{"m-Q4_K_XL.gguf"});
  CHECK(chosen({"m-UD-Q4_K_XL.gguf", "m-IQ4_XS.gguf"}, "IQ4_XS") == Paths{"m-IQ4_XS.gguf"});
  CHECK(chosen({"m-Q4_K_M.gguf"}, "Q4_K").front().find("nothing that 'Q4_K' names; it has Q4_K_M") !=
        std::string::npos);
  CHECK(chosen({"BF16/m-00001-of-00002.gguf", "BF16/m-00002-of-00002.gguf", "m-Q2_K.gguf"}, "bf16") ==
        Paths{"BF16/m-00001-of-00002.gguf", "BF16/m-00002-of-00002.gguf"});
  CHECK(chosen({"x/m-Q2_K.gguf"}, "M-q2_k.GGUF") == Paths{"x/m-Q2_K.gguf"});
  CHECK(quantisation_of("Qwen2.5-0.5B-Instruct-q4_k_m-00001-of-00003.gguf") == "Q4_K_M");
  CHECK(quantisation_of("qwen-3b.gguf").empty());
}

TEST_CASE("a directory is taken where there is no GGUF file, or it is wanted") {
  const Paths both = {"config.json",    "model.safetensors", "m-Q8_0.gguf",
                      "tokenizer.json", "README.md",         "x/config.json"};
  CHECK(chosen(both) == Paths{"m-Q8_0.gguf"});
  CHECK(chosen(both, "safetensors") == Paths{"config.json", "tokenizer.json", "model.safetensors"});
  CHECK(chosen({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                "consolidated.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin.index.json"}) ==
        Paths{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors"});
  CHECK(chosen({"adapter_config.json", "adapter_model.safetensors"}).front().find("no GGUF file") != std::string::npos);
  CHECK(choices_of(both) == Paths{"Q8_0", "safetensors"});
}

TEST_CASE("paths that climb are not used") {
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb"}) {
    INFO(bad);
    CHECK_FALSE(is_safe_path(bad));
  }
  CHECK(is_safe_path("a/b.c-d/..e"));
}

TEST_CASE("a redirect's Location is a URL, or a path of the same server") {
  const auto from = *parse_http_url("https://hub.example/a/b?c=d");
  const auto leads = [&](std::string_view location) {
    const auto url = redirected_url(from, location);
    return url ? (url->secure ? "https " : "http ") + url->authority() + " " + url->path : std::string("none");
  };
  CHECK(leads("https://cdn.example:8443/x?y=z#part") == "https cdn.example:8443 /x?y=z");
  CHECK(leads("//cdn.example/x") == "https cdn.example:443 /x");
  CHECK(leads("/x/y") == "https hub.example:443 /x/y");
  CHECK(leads("x:y") == "none");
  CHECK(leads("x/y:z") == "https hub.example:443 /a/x/y:z");
  CHECK(leads("http://hub.example/x") == "http hub.example:80 /x");
  CHECK(leads("ftp://hub.example/x") == "none");
  CHECK(leads("https://user:word@hub.example/") == "none");
  CHECK(is_same_origin(from, *parse_http_url("https://hub.example/other")));
  CHECK_FALSE(is_same_origin(from, *parse_http_url("https://hub.example:444/")));
  CHECK_FALSE(is_same_origin(from, *parse_http_url("http://hub.example:443/")));
}

TEST_CASE("checksums are SHA-256 or git's, by their length") {
  const auto sum_of = [](const std::string& expected, std::string_view text) {
    Checksum sum(expected, static_cast<std::int64_t>(text.size()));
    sum.add(text.substr(0, 1));
    sum.add(text.substr(1));
    return sum.finish();
  };
  // Results of sha256sum and git hash-object.
  CHECK(sum_of(kSum, "hello\n") == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  CHECK(sum_of(kCommit, "hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST_CASE("locks of the cache exclude, share, and survive their file's deletion") {
  const test::TemporaryFolder folder;
  const fs::path path = fs::path(folder.path()) / "x" / "a.lock";
  using Mode = CacheLock::Mode;
  CacheLock first;
  CacheLock second;
  CHECK(first.try_take(path, Mode::kExclusive).value());
  CHECK_FALSE(second.try_take(path, Mode::kExclusive).value());
  CHECK_FALSE(second.try_take(path, Mode::kShared).value());
  first.release();
  CHECK(first.try_take(path, Mode::kShared).value());
  CHECK(second.try_take(path, Mode::kShared).value());
  CacheLock third;
  CHECK_FALSE(third.try_take(path, Mode::kExclusive).value());
  fs::remove(path);
  CHECK(third.try_take(path, Mode::kExclusive).value());
}
