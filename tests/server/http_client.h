// HttpClient: a blocking HTTP/1.1 client over a raw socket, for tests: bytes out, bytes in. One thread at a time. A
// read or write that makes no progress for kPatience fails the test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quire::test {

struct HttpReply {
  int status = 0;                             // 0: the server closed without answering
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // chunked bodies are joined
  bool closed = false;                        // the server closed the connection after it
};

class HttpClient {
 public:
  static constexpr int kPatience = 240;  // seconds: a sanitizer on a busy machine takes a minute for a megabyte of text
  explicit HttpClient(std::uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  // The next reply; informational ones (100) are returned like any other. `to_head`: the request was HEAD.
  HttpReply receive(bool to_head = false);
  // Reads until the text is in what arrived and was not taken yet; false where the server closed first.
  bool receive_until(std::string_view text);
  bool receive_until_any(const std::vector<std::string_view>& texts);
  // True where the server closes without sending anything more.
  bool closed_by_server();
  // No more bytes will be sent; replies can still be read.
  void finish_sending();
  void close();

  HttpReply get(const std::string& path);
  HttpReply post(const std::string& path, const std::string& body);

 private:
  bool read_more();
  std::string take(std::size_t count);
  std::string take_line();

  int socket_ = -1;
  std::string input_;
};

// The data of each server-sent event in a stream's body.
std::vector<std::string> sse_data(const std::string& body);

}  // namespace quire::test
