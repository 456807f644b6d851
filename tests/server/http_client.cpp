#include "tests/server/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>

namespace quire::test {

HttpClient::HttpClient(std::uint16_t port) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{kPatience, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) FAIL("cannot connect");
}

HttpClient::~HttpClient() {
  close();
}

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void HttpClient::finish_sending() {
  ::shutdown(socket_, SHUT_WR);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;  // a child process of the server ended
    if (count < 0 && errno == EAGAIN) FAIL("the server took no byte for " << kPatience << " s");
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool HttpClient::read_more() {
  char buffer[16384];
  ssize_t count = 0;
  do {
    count = ::recv(socket_, buffer, sizeof buffer, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) FAIL("the server sent no byte for " << kPatience << " s");
  if (count <= 0) return false;
  input_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

std::string HttpClient::take(std::size_t count) {
  while (input_.size() < count && read_more()) {
  }
  std::string taken = input_.substr(0, count);
  input_.erase(0, count);
  return taken;
}

std::string HttpClient::take_line() {
  std::size_t end = std::string::npos;
  while ((end = input_.find("\r\n")) == std::string::npos) {
    if (!read_more()) return std::exchange(input_, {});
  }
  std::string line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return line;
}

HttpReply HttpClient::receive(bool to_head) {
  HttpReply reply;
  const std::string status = take_line();
  if (status.size() < 12) {
    reply.closed = true;
    return reply;
  }
  reply.status = std::stoi(status.substr(9, 3));
  for (std::string line = take_line(); !line.empty(); line = take_line()) {
    const std::size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
    reply.fields[name] = line.substr(std::min(line.size(), colon + 2));
  }
  if (reply.fields.count("transfer-encoding") != 0) {
    while (true) {
      const std::string line = take_line();
      if (line.empty()) break;
      const std::size_t size = std::stoul(line, nullptr, 16);
      reply.body += take(size);
      take_line();
      if (size == 0) break;
    }
  } else if (reply.fields.count("content-length") != 0 && !to_head) {
    reply.body = take(std::stoul(reply.fields["content-length"]));
  }
  if (reply.fields["connection"] == "close") reply.closed = closed_by_server();
  return reply;
}

bool HttpClient::receive_until(std::string_view text) {
  return receive_until_any({text});
}

bool HttpClient::receive_until_any(const std::vector<std::string_view>& texts) {
  const auto is_there = [&](std::string_view text) { return input_.find(text) != std::string::npos; };
  while (std::ranges::none_of(texts, is_there)) {
    if (!read_more()) return false;
  }
  return true;
}

bool HttpClient::closed_by_server() {
  return input_.empty() && !read_more();
}

HttpReply HttpClient::get(const std::string& path) {
  send("GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n");
  return receive();
}

HttpReply HttpClient::post(const std::string& path, const std::string& body) {
  send("POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
       std::to_string(body.size()) + "\r\n\r\n" + body);
  return receive();
}

std::vector<std::string> sse_data(const std::string& body) {
  std::vector<std::string> list;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = body.find('\n', at);
    list.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return list;
}

}  // namespace quire::test
