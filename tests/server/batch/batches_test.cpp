// Files and batches over HTTP.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "server/wire/multipart.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

ServerOptions with_batches(const BatchFolder& folder) {
  ServerOptions options = test_options();
  options.batches = folder.options;
  return options;
}

// A POST of a form with a file, as clients of OpenAI send it.
std::string upload_request(const std::string& content, const std::string& key = "", const std::string& more = "",
                           const std::string& purpose = "batch") {
  const std::string body = "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose + "\r\n" +
                           more +
                           "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n"
                           "Content-Type: application/jsonl\r\n\r\n" +
                           content + "\r\n--edge--\r\n";
  return "POST /v1/files HTTP/1.1\r\nHost: a\r\n" + (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") +
         "Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Sends a request with a key.
HttpReply ask(HttpClient& client, const std::string& method, const std::string& path, const std::string& body = "",
              const std::string& key = "") {
  client.send(method + " " + path + " HTTP/1.1\r\nHost: a\r\n" +
              (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") +
              (method == "POST" && !body.empty() ? "Content-Type: application/json\r\n" : "") +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  return client.receive();
}

Json json_of(const HttpReply& reply) {
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

std::string upload(HttpClient& client, const std::string& content, const std::string& key = "") {
  client.send(upload_request(content, key));
  return json_of(client.receive())["id"].get<std::string>();
}

std::string batch_body(const std::string& file, const std::string& endpoint = "/v1/completions") {
  return R"({"input_file_id":")" + file + R"(","endpoint":")" + endpoint + R"(","completion_window":"24h"})";
}

// Waits until the batch has one of the states.
Json wait_for(HttpClient& client, const std::string& id, const std::string& states, const std::string& key = "") {
  while (true) {
    Json batch = json_of(ask(client, "GET", "/v1/batches/" + id, "", key));
    if (states.find(batch["status"].get<std::string>()) != std::string::npos) return batch;
    std::this_thread::yield();
  }
}

std::string chat_line(const std::string& id, const std::string& more = "") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/chat/completions","body":{"messages":[)" +
         R"({"role":"user","content":"hello"}])" + more + "}}\n";
}

}  // namespace

TEST_CASE("a form's part 'file' is the file, and the last of a repeated field counts", "[batches]") {
  const BatchFolder folder;
  TestServer server({}, with_batches(folder));
  HttpClient client(server.port());
  for (const std::string name : {"", "; filename*=UTF-8''in.jsonl"}) {
    std::string request = upload_request("text", "", "", "other");
    const std::string purpose = "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n";
    const std::string with_name = "; filename=\"in.jsonl\"";
    request.replace(request.find(with_name), with_name.size(), name);
    request.insert(request.find("--edge\r\nContent-Disposition: form-data; name=\"file\""), purpose);
    const std::string before = "Content-Length: ";
    const std::size_t at = request.find(before) + before.size();
    const std::size_t size = request.size() - request.find("\r\n\r\n") - 4;
    request.replace(at, request.find('\r', at) - at, std::to_string(size));
    client.send(request);
    const Json file = json_of(client.receive());
    CHECK(file["filename"] == "upload.jsonl");
    CHECK(file["purpose"] == "batch");
    CHECK(file["bytes"] == 4);
  }
}

TEST_CASE("a file is uploaded, listed, read, downloaded and deleted", "[batches]") {
  const BatchFolder folder;
  TestServer server({}, with_batches(folder));
  HttpClient client(server.port());
  const std::string content = request_lines(3);
  client.send(upload_request(content));
  const Json file = json_of(client.receive());
  const std::string id = file["id"];
  CHECK(id.starts_with("file-"));
  CHECK(file["object"] == "file");
  CHECK(file["bytes"] == content.size());
  CHECK(file["filename"] == "in.jsonl");
  CHECK(file["purpose"] == "batch");
  CHECK(file["expires_at"].get<std::int64_t>() - file["created_at"].get<std::int64_t>() == 30 * 24 * 3600);
  CHECK(json_of(ask(client, "GET", "/v1/files/" + id)) == file);
  const HttpReply whole = ask(client, "GET", "/v1/files/" + id + "/content");
  CHECK(whole.status == 200);
  CHECK(whole.body == content);
  const std::string other = upload(client, "x");
  CHECK(json_of(ask(client, "GET", "/v1/files"))["data"].size() == 2);
  const Json page = json_of(ask(client, "GET", "/v1/files?limit=1&order=asc"));
  CHECK(page["data"].size() == 1);
  CHECK(page["has_more"] == true);
  CHECK(json_of(ask(client, "GET", "/v1/files?purpose=batch_output"))["data"].empty());
  CHECK(ask(client, "GET", "/v1/files?limit=0").status == 400);
  CHECK(json_of(ask(client, "DELETE", "/v1/files/" + id))["deleted"] == true);
  CHECK(ask(client, "GET", "/v1/files/" + id).status == 404);
  CHECK(ask(client, "DELETE", "/v1/files/" + id).status == 404);
  CHECK(ask(client, "GET", "/v1/files/../" + other).status == 404);
}

TEST_CASE("a file larger than any memory bound goes to the disk and comes back as it was", "[batches]") {
  const BatchFolder folder;
  ServerOptions options = with_batches(folder);
  options.max_body_bytes = 1024;  // holds for requests, not for files
  TestServer server({}, options);
  HttpClient client(server.port());
  std::string content;
  for (int i = 0; content.size() < 3'000'000; ++i)
    content += "line " + std::to_string(i) + "\r\n--edg" + std::string(1, static_cast<char>('A' + i % 26)) + "\n";
  const std::string id = upload(client, content);
  CHECK(ask(client, "GET", "/v1/files/" + id + "/content").body == content);
}

TEST_CASE("uploads that are no valid form, too large or for something else are refused", "[batches]") {
  BatchFolder folder;
  folder.options.max_file_bytes = 1000;
  TestServer server({}, with_batches(folder));
  const auto refusal = [&](const std::string& request) {
    HttpClient client(server.port());
    client.send(request);
    const HttpReply reply = client.receive();
    INFO(reply.body);
    const Json error = Json::parse(reply.body)["error"];
    return std::to_string(reply.status) + " " + error["code"].get<std::string>();
  };
  const auto form = [](const std::string& body, const std::string& type = "multipart/form-data; boundary=edge") {
    return "POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Type: " + type +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  CHECK(refusal(upload_request("x", "", "", "fine-tune")) == "400 invalid_value");
  CHECK(refusal(upload_request(std::string(1001, 'x'))) == "413 file_too_large");
  CHECK(refusal(upload_request(std::string(200'000, 'x'))).starts_with("413 "));
  CHECK(refusal(form("{}", "application/json")) == "415 unsupported_media_type");
  CHECK(refusal(form("x", "multipart/form-data")) == "415 unsupported_media_type");
  CHECK(refusal(form("")) == "400 invalid_multipart");
  CHECK(refusal(form("no boundary at all")) == "400 invalid_multipart");
  CHECK(refusal(form("--edge\r\n\r\nno head\r\n--edge--")) == "400 invalid_multipart");
  CHECK(refusal(form("--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--edge--")) ==
        "400 missing_required_parameter");
  CHECK(refusal(form("--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--edge")) ==
        "400 invalid_multipart");
  const std::string half = "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx";
  CHECK(refusal(upload_request("x", "", half.substr(0, half.size()) + "\r\n")) == "400 invalid_value");  // two files
  const std::string expiry = "--edge\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n10\r\n";
  CHECK(refusal(upload_request("x", "", expiry)) == "400 invalid_value");
  // A page of another site.
  std::string foreign = upload_request("x");
  foreign.insert(foreign.find("Content-Type"), "Origin: https://evil.example\r\n");
  CHECK(refusal(foreign) == "415 unsupported_media_type");
  HttpClient client(server.port());
  CHECK(json_of(ask(client, "GET", "/v1/files"))["data"].empty());
}

TEST_CASE("a client that leaves in the middle of an upload leaves nothing", "[batches]") {
  const BatchFolder folder;
  TestServer server({}, with_batches(folder));
  {
    HttpClient client(server.port());
    const std::string request = upload_request(std::string(2'000'000, 'x'));
    client.send(request.substr(0, 1'500'000));
  }
  const auto is_empty = [&] {
    std::error_code absent;  // until the store is open
    return std::filesystem::is_empty(folder.path / "files", absent) && !absent;
  };
  while (!is_empty())
    std::this_thread::yield();
  HttpClient client(server.port());
  CHECK(json_of(ask(client, "GET", "/v1/files"))["data"].empty());
}

TEST_CASE("without a folder files and batches are not served", "[batches]") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(Json::parse(ask(client, "GET", "/v1/files").body)["error"]["code"] == "batches_disabled");
  CHECK(ask(client, "POST", "/v1/batches", "{}").status == 404);
  client.send(upload_request("x"));
  CHECK(client.receive().status == 404);
}

TEST_CASE("a batch answers each request as its endpoint does", "[batches]") {
  const BatchFolder folder;
  TestServer server(says("fine"), with_batches(folder));
  HttpClient client(server.port());
  const std::string input = chat_line("good") + chat_line("warm", R"(,"temperature":-1)") +
                            chat_line("absent", R"(,"model":"absent")") + chat_line("streamed", R"(,"stream":true)");
  const std::string file = upload(client, input);
  const Json made =
      json_of(ask(client, "POST", "/v1/batches",
                  R"({"input_file_id":")" + file +
                      R"(","endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"b"}})"));
  CHECK(made["object"] == "batch");
  CHECK(made["status"] == "validating");
  CHECK(made["metadata"]["a"] == "b");
  CHECK(made["output_file_id"].is_null());
  CHECK(made["expires_at"].get<std::int64_t>() - made["created_at"].get<std::int64_t>() == 24 * 3600);
  const Json batch = wait_for(client, made["id"], "completed failed");
  INFO(batch.dump());
  CHECK(batch["status"] == "completed");
  CHECK(batch["errors"].is_null());
  CHECK(batch["request_counts"] == Json({{"total", 4}, {"completed", 1}, {"failed", 3}}));
  CHECK(batch["usage"]["output_tokens"] == 5);
  const std::string output =
      ask(client, "GET", "/v1/files/" + batch["output_file_id"].get<std::string>() + "/content").body;
  const Json answer = Json::parse(output);
  CHECK(answer["custom_id"] == "good");
  CHECK(answer["error"].is_null());
  CHECK(answer["response"]["status_code"] == 200);
  CHECK(answer["response"]["body"]["object"] == "chat.completion");
  CHECK(answer["response"]["body"]["choices"][0]["message"]["content"] == "fine");
  const std::string errors =
      ask(client, "GET", "/v1/files/" + batch["error_file_id"].get<std::string>() + "/content").body;
  std::map<std::string, Json> failed;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);)
    failed[Json::parse(line)["custom_id"]] = Json::parse(line)["response"];
  REQUIRE(failed.size() == 3);
  CHECK(failed["warm"]["status_code"] == 400);
  CHECK(failed["warm"]["body"]["error"]["param"] == "temperature");
  CHECK(failed["absent"]["status_code"] == 404);
  CHECK(failed["absent"]["body"]["error"]["code"] == "model_not_found");
  CHECK(failed["streamed"]["body"]["error"]["param"] == "stream");
  CHECK(server.engine().last_request()->is_background);
}

TEST_CASE("a batch is refused with the field that is wrong", "[batches]") {
  const BatchFolder folder;
  TestServer server({}, with_batches(folder));
  HttpClient client(server.port());
  const std::string file = upload(client, request_lines(1));
  const auto param = [&](const std::string& body) { return refused_param(client, "/v1/batches", body); };
  CHECK(param(R"({})") == "input_file_id");
  CHECK(param(batch_body("file-absent")) == "input_file_id");
  CHECK(param(batch_body(file, "/v1/rerank")) == "endpoint");
  CHECK(param(R"({"input_file_id":")" + file + R"(","endpoint":"/v1/completions"})") == "completion_window");
  for (const std::string window : {"", "h", "0h", "24", "31d", "24hh", "-1h", "99999999999999999999h"}) {
    CHECK(param(R"({"input_file_id":")" + file + R"(","endpoint":"/v1/completions","completion_window":")" + window +
                R"("})") == "completion_window");
  }
  CHECK(ask(client, "GET", "/v1/batches/batch_absent").status == 404);
  CHECK(ask(client, "POST", "/v1/batches/batch_absent/cancel").status == 404);
  CHECK(json_of(ask(client, "GET", "/v1/batches"))["data"].empty());
  // Text that is no batch's request.
  const Json made = json_of(ask(client, "POST", "/v1/batches", batch_body(upload(client, "{\n"))));
  const Json failed = wait_for(client, made["id"], "failed");
  CHECK(failed["errors"]["object"] == "list");
  CHECK(failed["errors"]["data"][0]["code"] == "invalid_json_line");
  CHECK(failed["errors"]["data"][0]["line"] == 1);
}

TEST_CASE("a cancelled batch ends its requests in the engine, and its answers stay", "[batches]") {
  const BatchFolder folder;
  TestServer server(says("fine"), with_batches(folder));
  server.engine().hold(true);
  HttpClient client(server.port());
  const Json made = json_of(ask(client, "POST", "/v1/batches", batch_body(upload(client, request_lines(5)))));
  server.engine().wait_live(5);
  const std::string id = made["id"];
  CHECK(json_of(ask(client, "POST", "/v1/batches/" + id + "/cancel"))["status"] == "cancelling");
  server.engine().wait_aborted(5);
  const Json batch = wait_for(client, id, "cancelled");
  CHECK(batch["request_counts"]["total"] == 5);
  CHECK(batch["output_file_id"].is_null());
  CHECK(ask(client, "POST", "/v1/batches/" + id + "/cancel").status == 409);
}

TEST_CASE("no more requests of batches run at once than the bound says, and users are served meanwhile", "[batches]") {
  BatchFolder folder;
  folder.options.max_running = 3;
  TestServer server(says("fine"), with_batches(folder));
  server.engine().hold(true);
  HttpClient client(server.port());
  const Json made = json_of(ask(client, "POST", "/v1/batches", batch_body(upload(client, request_lines(20)))));
  server.engine().wait_live(3);
  HttpClient user(server.port());
  user.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"p\"}");
  server.engine().wait_live(4);
  CHECK_FALSE(server.engine().last_request()->is_background);
  const HttpReply page = ask(client, "GET", "/metrics");
  CHECK(page.body.find("quire:batch_requests_running 3") != std::string::npos);
  server.engine().hold(false);
  CHECK(user.receive().status == 200);
  const Json batch = wait_for(client, made["id"], "completed");
  CHECK(batch["request_counts"]["completed"] == 20);
}

TEST_CASE("one key sees nothing of another key's files and batches", "[batches]") {
  ::setenv("QUIRE_TEST_KEY_BATCH_A", "alice-secret", 1);
  ::setenv("QUIRE_TEST_KEY_BATCH_B", "bob-secret", 1);
  const BatchFolder folder;
  ServerOptions options = with_batches(folder);
  for (const auto& [name, variable] :
       {std::pair("alice", "QUIRE_TEST_KEY_BATCH_A"), {"bob", "QUIRE_TEST_KEY_BATCH_B"}}) {
    ApiKeyOptions key;
    key.name = name;
    key.env = variable;
    options.security.keys.push_back(key);
  }
  TestServer server(says("fine"), options);
  HttpClient client(server.port());
  const std::string alice = "alice-secret";
  const std::string bob = "bob-secret";
  const std::string file = upload(client, request_lines(2), alice);
  const std::string id = json_of(ask(client, "POST", "/v1/batches", batch_body(file), alice))["id"].get<std::string>();
  const Json batch = wait_for(client, id, "completed", alice);
  CHECK(server.engine().last_request()->key_name == "alice");
  const std::string output = batch["output_file_id"];
  for (const std::string& path : {"/v1/files/" + file, "/v1/files/" + file + "/content", "/v1/files/" + output,
                                  "/v1/files/" + output + "/content", "/v1/batches/" + id}) {
    INFO(path);
    CHECK(ask(client, "GET", path, "", bob).status == 404);
    CHECK(ask(client, "GET", path, "", alice).status == 200);
    CHECK(ask(client, "GET", path).status == 401);
  }
  CHECK(ask(client, "DELETE", "/v1/files/" + file, "", bob).status == 404);
  CHECK(ask(client, "POST", "/v1/batches/" + id + "/cancel", "", bob).status == 404);
  CHECK(ask(client, "POST", "/v1/batches", batch_body(file), bob).status == 400);
  CHECK(json_of(ask(client, "GET", "/v1/files", "", bob))["data"].empty());
  CHECK(json_of(ask(client, "GET", "/v1/batches", "", bob))["data"].empty());
  CHECK(json_of(ask(client, "GET", "/v1/files", "", alice))["data"].size() == 2);
}

TEST_CASE("a batch waits where its key's quota is used up, which is none of the key's other requests' quota",
          "[batches]") {
  ::setenv("QUIRE_TEST_KEY_BATCH_Q", "quota-secret", 1);
  const BatchFolder folder;
  ServerOptions options = with_batches(folder);
  ApiKeyOptions key;
  key.name = "carol";
  key.env = "QUIRE_TEST_KEY_BATCH_Q";
  key.quota.requests_per_minute = 6;
  options.security.keys = {key};
  TestServer server(says("fine"), options);
  HttpClient client(server.port());
  const std::string secret = "quota-secret";
  const std::string file = upload(client, request_lines(20), secret);
  const std::string id = json_of(ask(client, "POST", "/v1/batches", batch_body(file), secret))["id"].get<std::string>();
  while (json_of(ask(client, "GET", "/v1/batches/" + id, "", secret))["request_counts"]["completed"] < 6)
    std::this_thread::yield();
  const Json batch = json_of(ask(client, "GET", "/v1/batches/" + id, "", secret));
  CHECK(batch["status"] == "in_progress");
  CHECK(batch["request_counts"]["failed"] == 0);
  CHECK(batch["request_counts"]["completed"] < 8);
  // Two requests of the key made the file and the batch; four are left, whatever the batch has used.
  const std::string body = R"({"prompt":"x","max_tokens":1})";
  for (int i = 0; i < 4; ++i)
    CHECK(ask(client, "POST", "/v1/completions", body, secret).status == 200);
  CHECK(ask(client, "POST", "/v1/completions", body, secret).status == 429);
}

TEST_CASE("a drain ends a batch's requests at once, cuts nothing, and the next server continues", "[batches]") {
  const BatchFolder folder;
  std::string id;
  {
    TestServer server(says("fine"), with_batches(folder));
    server.engine().hold(true);
    HttpClient client(server.port());
    id = json_of(ask(client, "POST", "/v1/batches", batch_body(upload(client, request_lines(8)))))["id"];
    server.engine().wait_live(8);
    server.server().stop();
    CHECK(server.server().wait() == 0);
  }
  TestServer server(says("fine"), with_batches(folder));
  HttpClient client(server.port());
  const Json batch = wait_for(client, id, "completed");
  CHECK(batch["request_counts"] == Json({{"total", 8}, {"completed", 8}, {"failed", 0}}));
}

TEST_CASE("a second server waits for the folder, and takes the batch over", "[batches]") {
  const BatchFolder folder;
  auto first = std::make_unique<TestServer>(says("fine"), with_batches(folder));
  first->engine().hold(true);
  std::string id;
  {
    HttpClient client(first->port());
    id = json_of(ask(client, "POST", "/v1/batches", batch_body(upload(client, request_lines(3)))))["id"];
  }
  TestServer second(says("fine"), with_batches(folder));
  HttpClient client(second.port());
  const HttpReply refused = ask(client, "GET", "/v1/batches/" + id);
  CHECK(refused.status == 503);
  CHECK(refused.fields.count("retry-after") == 1);
  first->server().stop();
  first->server().wait();
  while (ask(client, "GET", "/v1/batches/" + id).status == 503)
    std::this_thread::yield();
  CHECK(wait_for(client, id, "completed")["request_counts"]["completed"] == 3);
}

TEST_CASE("a form is read the same however it is split", "[batches]") {
  const std::string body =
      "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b  \r\n"
      "X: y\r\ncontent-disposition: FORM-DATA; filename=\"q\\\"\\\\.txt\"; name=file\r\n\r\n"
      "line\r\n--\r\n-b\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"e\"\r\n\r\n\r\n--b--\r\nrest";
  for (std::size_t size = 1; size <= body.size(); ++size) {
    MultipartReader reader("b");
    std::vector<MultipartPiece> pieces;
    for (std::size_t at = 0; at < body.size(); at += size)
      REQUIRE(reader.feed(std::string_view(body).substr(at, size), pieces));
    REQUIRE(reader.is_done());
    std::vector<MultipartPiece> parts;
    for (const MultipartPiece& piece : pieces) {
      if (piece.begins_part) parts.push_back(piece);
      if (!piece.begins_part) parts.back().data += piece.data;
    }
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].name == "a");
    CHECK(parts[0].data == "1");
    CHECK_FALSE(parts[0].filename);
    CHECK(parts[1].name == "file");
    CHECK(parts[1].filename == "q\"\\.txt");
    CHECK(parts[1].data == "line\r\n--\r\n-b\r\n");
    CHECK(parts[2].data.empty());
  }
}
