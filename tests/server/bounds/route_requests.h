// route_requests: for each of the router's own routes a request that its handler answers, and the answer's longest form
// where a client can ask for one. A route that is not known here fails the test that walks them. Any thread.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "server/router.h"

namespace quire::test {

inline std::string request_of(std::string_view method, const std::string& path, const std::string& body = "",
                              const std::string& fields = "") {
  const bool has_body = method == "POST" || method == "DELETE";
  return std::string(method) + " " + path + " HTTP/1.1\r\nHost: a\r\n" + fields +
         (has_body ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "") + "\r\n" + body;
}

// A form with a file.
inline std::string form_request(const std::string& content, const std::string& fields = "") {
  const std::string body =
      "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" +
      content + "\r\n--edge--\r\n";
  return request_of("POST", "/v1/files", body, fields + "Content-Type: multipart/form-data; boundary=edge\r\n");
}

// A client's message of a WebSocket, unmasked by a mask of zeros.
inline std::string socket_message(const std::string& text) {
  std::string frame = "\x81";
  if (text.size() < 126) {
    frame += static_cast<char>(0x80 | text.size());
  } else {
    frame += static_cast<char>(0x80 | 127);
    for (int shift = 56; shift >= 0; shift -= 8)
      frame += static_cast<char>((text.size() >> shift) & 0xff);
  }
  return frame + std::string(4, '\0') + text;
}

inline std::string open_socket_request(const std::string& path, const std::string& fields = "") {
  return request_of("GET", path, "",
                    fields +
                        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
}

// Bodies by the end of the path; other paths take none.
inline const std::map<std::string, std::string>& route_bodies() {
  static const std::map<std::string, std::string> kBodies = {
      {"/v1/completions", R"({"prompt":"ab","max_tokens":9})"},
      {"/completions", R"({"prompt":"ab","max_tokens":9})"},
      {"/completion", R"({"prompt":"ab","n_predict":9})"},
      {"/infill", R"({"input_prefix":"a","input_suffix":"b","n_predict":9})"},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"ab"}],"max_tokens":9})"},
      {"/chat/completions", R"({"messages":[{"role":"user","content":"ab"}],"max_tokens":9})"},
      {"/v1/chat/completions/render", R"({"messages":[{"role":"user","content":"ab"}]})"},
      {"/v1/completions/render", R"({"prompt":"ab"})"},
      {"/v1/messages/render", R"({"max_tokens":9,"messages":[{"role":"user","content":"ab"}]})"},
      {"/inference/v1/generate", R"({"token_ids":[97,98],"sampling_params":{"max_tokens":9}})"},
      {"/v1/messages", R"({"max_tokens":9,"messages":[{"role":"user","content":"ab"}]})"},
      {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"ab"}]})"},
      {"/v1/responses", R"({"input":"ab","max_output_tokens":9})"},
      {"/responses", R"({"input":"ab","max_output_tokens":9})"},
      {"/v1/responses/input_tokens", R"({"input":"ab"})"},
      {"/v1/responses/compact", R"({"input":"ab"})"},
      {"/responses/compact", R"({"input":"ab"})"},
      {"/v1/conversations", R"({"items":[{"role":"user","content":"ab"}]})"},
      {"/v1/embeddings", R"({"input":"ab"})"},
      {"/embeddings", R"({"input":"ab"})"},
      {"/pooling", R"({"input":"ab"})"},
      {"/v1/pooling", R"({"input":"ab"})"},
      {"/classify", R"({"input":"ab"})"},
      {"/v1/classify", R"({"input":"ab"})"},
      {"/rerank", R"({"query":"a","documents":["b","c"]})"},
      {"/v1/rerank", R"({"query":"a","documents":["b","c"]})"},
      {"/v2/rerank", R"({"query":"a","documents":["b","c"]})"},
      {"/reranking", R"({"query":"a","documents":["b","c"]})"},
      {"/v1/reranking", R"({"query":"a","documents":["b","c"]})"},
      {"/score", R"({"text_1":"a","text_2":"b"})"},
      {"/v1/score", R"({"text_1":"a","text_2":"b"})"},
      {"/v1/batches", R"({"input_file_id":"file-1","endpoint":"/v1/completions","completion_window":"24h"})"},
      {"/tokenize", R"({"prompt":"ab"})"},
      {"/detokenize", R"({"tokens":[97,98]})"},
      {"/apply-template", R"({"messages":[{"role":"user","content":"ab"}]})"},
      {"/api/chat", R"({"model":"fake","messages":[{"role":"user","content":"ab"}],"options":{"num_predict":9}})"},
      {"/api/generate", R"({"model":"fake","prompt":"ab","options":{"num_predict":9}})"},
      {"/api/embed", R"({"model":"fake","input":"ab"})"},
      {"/api/embeddings", R"({"model":"fake","prompt":"ab"})"},
      {"/api/show", R"({"model":"fake"})"},
      {"/api/pull", R"({"model":"a/b"})"},
      {"/admin/models/load", R"({"model":"fake","path":"x.gguf"})"},
      {"/admin/models/unload", R"({"model":"none"})"},
      {"/admin/models/sleep", R"({"model":"none"})"},
      {"/admin/models/wake", R"({"model":"none"})"},
      {"/admin/models/replace", R"({"model":"none","path":"x.gguf"})"},
      {"/admin/models/pull", R"({"model":"a/b"})"},
      {"/admin/models/remove", R"({"model":"a/b"})"},
      {"/admin/trace", R"({"seconds":0})"},
      {"/models/load", R"({"model":"none"})"},
      {"/models/unload", R"({"model":"none"})"},
      {"/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"b"})"},
      {"/v1/unload_lora_adapter", R"({"lora_name":"a"})"},
  };
  return kBodies;
}

// The request of a route; `rest` stands for what its path ends with.
inline std::string request_of_route(const Route& route, const std::string& rest = "none") {
  std::string path(route.path);
  if (path.back() == '*') path.replace(path.size() - 1, 1, rest);
  if (std::holds_alternative<SocketRoute>(route.answer)) return open_socket_request(path);
  if (route.takes_form()) return form_request(R"({"a":1})");
  const auto body = route_bodies().find(std::string(route.path));
  const bool has_body = route.method == "POST";
  return request_of(route.method, path, body != route_bodies().end() ? body->second : has_body ? "{}" : "");
}

}  // namespace quire::test
