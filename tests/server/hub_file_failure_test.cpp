// A disk that refuses any one write, sync or rename during a download: the pull ends with an error that names the
// cause, no damaged file has its final name, and the next pull completes without asking for a byte that is on the disk.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <charconv>
#include <fstream>
#include <iterator>

#include "server/hub/checksum.h"
#include "server/hub/pull.h"
#include "tests/support/scripted_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/file_failures.h"

using namespace quire;
using namespace quire::test;
using namespace quire::hub;

namespace hub_file_failure {

namespace fs = std::filesystem;

constexpr int kMostSteps = 10'000;  // more means a hang

const std::string kAnySha(64, 'a');
const std::string kRevision(40, 'c');

std::string sha_of(const std::string& text) {
  Checksum sum(kAnySha, static_cast<std::int64_t>(text.size()));
  sum.add(text);
  return sum.finish();
}

// Shards of a model; the second is long enough to arrive in pieces.
const std::vector<std::pair<std::string, std::string>>& shards() {
  static const std::vector<std::pair<std::string, std::string>> kShards = {
      {"m-00001-of-00002.gguf", std::string(1000, '1')}, {"m-00002-of-00002.gguf", std::string(60'000, '2')}};
  return kShards;
}

std::string http_reply(const std::string& status, const std::string& fields, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\n{}Connection: close\r\nContent-Length: {}\r\n\r\n", status, fields, body.size()) +
         body;
}

std::string list_of_files() {
  std::string siblings;
  for (const auto& [name, bytes] : shards())
    siblings += fmt::format(R"({}{{"rfilename":"{}","size":{},"blobId":"{}","lfs":{{"sha256":"{}","size":{}}}}})",
                            siblings.empty() ? "" : ",", name, bytes.size(), kRevision, sha_of(bytes), bytes.size());
  return fmt::format(R"({{"sha":"{}","siblings":[{}]}})", kRevision, siblings);
}

std::size_t range_of(const std::string& request) {
  constexpr std::string_view kField = "\r\nRange: bytes=";
  const std::size_t at = request.find(kField);
  std::size_t from = 0;
  if (at != std::string::npos) std::from_chars(&request[at + kField.size()], request.data() + request.size(), from);
  return from;
}

// The hub; counts the bytes of files that it sent.
class CountingHub {
 public:
  CountingHub()
      : server_([this](const std::string& request, const ScriptedServer::Send& send) { answer(request, send); }) {}

  HubEnvironment environment(const fs::path& cache) const {
    return {.endpoint = *parse_http_url(server_.url()),
            .endpoint_text = server_.url(),
            .cache = cache,
            .token = "",
            .offline = false};
  }
  std::size_t num_sent() const { return num_sent_; }

 private:
  void answer(const std::string& request, const ScriptedServer::Send& send) {
    if (request.starts_with("GET /api/models/")) {
      send(http_reply("200 OK", "Content-Type: application/json\r\n", list_of_files()));
      return;
    }
    for (const auto& [name, bytes] : shards()) {
      if (request.find("/" + name + " ") == std::string::npos) continue;
      const std::size_t from = range_of(request);
      const std::string range = fmt::format("Content-Range: bytes {}-{}/{}\r\n", from, bytes.size() - 1, bytes.size());
      num_sent_ += bytes.size() - from;
      send(http_reply(from > 0 ? "206 Partial Content" : "200 OK", from > 0 ? range : "", bytes.substr(from)));
      return;
    }
    send(http_reply("404 Not Found", "", ""));
  }

  std::atomic<std::size_t> num_sent_{0};
  ScriptedServer server_;
};

Result<CachedModel> pull_model(const HubEnvironment& environment) {
  Pull pull(environment, *parse_reference("owner/name"), 0, {});
  for (int i = 0; i < kMostSteps; ++i) {
    const auto is_done = pull.step();
    if (!is_done) return tl::make_unexpected(is_done.error());
    if (*is_done) return pull.result();
  }
  FAIL("the pull does not end");
  return CachedModel{};
}

std::string content_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Files with final names hold what the hub has; the last revision is one whose files are all there.
void check_cache(const fs::path& cache) {
  const fs::path repository = cache / "models--owner--name";
  for (const auto& [name, bytes] : shards()) {
    const fs::path blob = repository / "blobs" / sha_of(bytes);
    if (fs::exists(blob)) CHECK(content_of_file(blob) == bytes);
    const fs::path linked = repository / "snapshots" / kRevision / name;
    if (fs::is_symlink(linked)) CHECK(content_of_file(linked) == bytes);
    if (fs::exists(repository / "refs" / "main")) CHECK(content_of_file(linked) == bytes);
  }
}

}  // namespace hub_file_failure

using namespace hub_file_failure;

TEST_CASE("a disk that fails at any step of a download damages nothing, and the next download ends it", "[hub]") {
  const FileStep step = GENERATE(FileStep::kWrite, FileStep::kSync, FileStep::kRename);
  std::size_t total = 0;
  for (const auto& shard : shards())
    total += shard.second.size();
  int num_failed = 0;
  for (std::int64_t n = 0;; ++n) {
    INFO("step " << static_cast<int>(step) << ", number " << n);
    const TemporaryFolder folder;
    CountingHub hub;
    const HubEnvironment environment = hub.environment(folder / "hub");
    fail_next_file_step(step, n);
    const auto first = pull_model(environment);
    const bool has_failed = !forget_file_failure();
    check_cache(folder / "hub");
    if (!has_failed) {
      CHECK(first.has_value());
      break;
    }
    ++num_failed;
    if (!first) {
      INFO(first.error().message);
      CHECK(first.error().message.find("No space left") != std::string::npos);
    }
    const auto second = pull_model(environment);
    REQUIRE(second.has_value());
    check_cache(folder / "hub");
    for (const auto& shard : shards())
      CHECK(content_of_file(second->path.parent_path() / shard.first) == shard.second);
    // A write that failed leaves half of a piece; the rest of that shard is asked for again, and nothing else.
    CHECK(hub.num_sent() <= total + shards().back().second.size());
    if (step != FileStep::kWrite) CHECK(hub.num_sent() == total);
  }
  CHECK(num_failed >= 2);
}
