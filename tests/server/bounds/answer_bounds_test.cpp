// Each handler with the slowest reader and the longest answer that a client can request: every route of the router is
// in one row of the table of deploy/docs/security.md, and the bytes waiting for slow readers keep to that row's bound.
#include <deque>
#include <set>
#include <thread>

#include "server/wire/client_budget.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/server/bounds/route_requests.h"
#include "tests/server/test_server.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace answer_bounds {

constexpr std::int64_t kBound = 4 << 20;
constexpr std::size_t kFewWords = 64 * 1024;
constexpr int kNumReaders = 12;
constexpr std::size_t kLong = 1 << 20;
constexpr const char* kRowOfFewWords = "a few words: 64 KiB at most";
constexpr const char* kRowOfOneCopy = "one copy for all connections";
constexpr const char* kRowOfCharged = "`server.max_unread_bytes`, charged to the key or address";

struct BoundRow {
  std::vector<std::string> paths;  // a final '*' matches every path that begins so
  std::string bound;
};

std::vector<BoundRow> bound_table() {
  std::vector<BoundRow> rows;
  bool is_inside = false;
  for (const std::string& line : read_lines(source_folder() / "deploy/docs/security.md")) {
    if (line == "| answers of | wait for a slow reader as |") is_inside = true;
    if (!is_inside || line.starts_with("| ---") || line.starts_with("| answers of")) continue;
    if (!line.starts_with("| ")) break;
    BoundRow row;
    const std::size_t middle = line.find(" | ", 2);
    const std::string paths = line.substr(2, middle - 2);
    row.bound = line.substr(middle + 3, line.size() - middle - 5);
    for (std::size_t at = 0; (at = paths.find('`', at)) != std::string::npos;) {
      const std::size_t end = paths.find('`', at + 1);
      row.paths.push_back(paths.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The row with the longest path that matches the route.
std::string bound_of(const std::vector<BoundRow>& rows, std::string_view route) {
  std::string bound;
  std::size_t longest = 0;
  for (const BoundRow& row : rows) {
    for (const std::string& path : row.paths) {
      const bool is_pattern = path.back() == '*';
      const std::string_view begin = std::string_view(path).substr(0, path.size() - (is_pattern ? 1 : 0));
      const bool matches = path == route || (is_pattern && route.starts_with(begin));
      if (!matches || path.size() <= longest) continue;
      longest = path.size();
      bound = row.bound;
    }
  }
  return bound;
}

// A request to the route for an answer of a megabyte, if it can give one.
std::string longest_request(const Route& route, const std::string& conversation) {
  const std::string path(route.path);
  const std::string text(kLong, 'x');
  const std::string message = R"([{"role":"user","content":")" + text + R"("}])";
  if (path == "/apply-template") return request_of("POST", path, R"({"messages":)" + message + "}");
  if (path == "/tokenize") return request_of("POST", path, R"({"prompt":")" + text + R"("})");
  if (path == "/v1/conversations/*" && route.method == "GET")
    return request_of("GET", "/v1/conversations/" + conversation + "/items");
  return request_of_route(route);
}

ServerOptions unread_options(const BatchFolder& folder) {
  ServerOptions options = test_options();
  options.max_body_bytes = 2 << 20;
  options.max_unread_bytes = kBound;
  options.batches = folder.options;
  return options;
}

// Readers that take the answer's head and nothing more. Their waiting bytes are bounded while they stay.
void check_slow_readers(TestServer& server, const std::string& request, bool is_long, bool is_shared) {
  std::deque<HttpClient> readers;
  for (int i = 0; i < kNumReaders; ++i)
    readers.emplace_back(server.port()).send(request);
  int num_answered = 0;
  for (HttpClient& reader : readers)
    num_answered += reader.receive_until("HTTP/1.1 ") ? 1 : 0;
  CHECK(num_answered > 0);
  const ClientBudget& answers = server.server().state().answers;
  // A long answer is charged once the kernel takes no more of it.
  while (is_long && !is_shared && answers.num_bytes() == 0 && answers.num_cut() == 0)
    std::this_thread::yield();
  HttpClient neighbour(server.port());
  for (int i = 0; i < 3; ++i) {
    CHECK(answers.num_bytes() <= kBound + 2 * static_cast<std::int64_t>(kLong));
    CHECK(neighbour.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status == 200);
  }
  if (is_shared) CHECK(answers.num_bytes() < static_cast<std::int64_t>(kFewWords));
  for (HttpClient& reader : readers)
    reader.close();
  while (server.server().state().num_busy.load() > 0)
    std::this_thread::yield();
}

}  // namespace answer_bounds

using namespace answer_bounds;

TEST_CASE("every handler's answers have a bound in the table, and keep to it with readers that do not read") {
  const std::vector<BoundRow> table = bound_table();
  REQUIRE(table.size() == 3);
  const BatchFolder folder;
  TestServer server(says(std::string(8, 'y')), unread_options(folder),
                    [](ServedModel& model) { model.max_model_len = 2'000'000; });
  HttpClient client(server.port());
  const Json made = answer_to(client, "/v1/conversations",
                              R"({"items":[{"role":"user","content":")" + std::string(kLong, 'x') + R"("}]})");
  const std::string conversation = made["id"];
  for (const Route& route : routes()) {
    INFO(route.method << " " << route.path);
    const std::string bound = bound_of(table, route.path);
    const std::set<std::string> known{kRowOfFewWords, kRowOfOneCopy, kRowOfCharged};
    CHECK(known.count(bound) == 1);
    const bool opens_socket = std::holds_alternative<SocketRoute>(route.answer);
    std::string request = longest_request(route, conversation);
    if (opens_socket) request += socket_message(R"({"type":"response.create","input":"a","max_output_tokens":9})");
    std::size_t length = 0;
    if (!opens_socket) {
      HttpClient whole(server.port());
      whole.send(request);
      length = whole.receive().body.size();
    }
    const bool is_shared = bound == kRowOfOneCopy;
    if (bound == kRowOfFewWords) CHECK(length <= kFewWords);
    if (length > kFewWords || opens_socket) check_slow_readers(server, request, length >= kLong / 2, is_shared);
  }
}

TEST_CASE("the table of bounds has no path that the router does not") {
  for (const BoundRow& row : bound_table()) {
    for (const std::string& path : row.paths) {
      INFO(path);
      const bool is_pattern = path.back() == '*';
      const std::string begin = path.substr(0, path.size() - (is_pattern ? 1 : 0));
      CHECK(std::ranges::any_of(routes(), [&](const Route& route) {
        return route.path == path || (is_pattern && route.path.starts_with(begin));
      }));
    }
  }
}
