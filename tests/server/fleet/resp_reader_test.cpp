#include "server/fleet/resp_reader.h"

#include <catch2/catch.hpp>
#include <string_view>

using quire::RespReader;
using quire::RespReply;

namespace {

// The reader's answer to a whole reply: its text or why it is broken.
std::string read(std::string_view bytes) {
  RespReader reader(1024);
  if (!reader.feed(bytes)) return "refused: " + reader.why();
  const auto reply = reader.next();
  if (reply == nullptr) return reader.why().empty() ? "incomplete" : "broken";
  switch (reply->kind) {
    case RespReply::Kind::kNothing: return "nothing";
    case RespReply::Kind::kNumber: return std::to_string(reply->number);
    case RespReply::Kind::kText: return "text " + reply->text;
    case RespReply::Kind::kError: return "error " + reply->text;
  }
  return "";
}

}  // namespace

TEST_CASE("replies of a store are read by their kind") {
  CHECK(read("+OK\r\n") == "text OK");
  CHECK(read("$3\r\nabc\r\n") == "text abc");
  CHECK(read("$-1\r\n") == "nothing");
  CHECK(read(":-7\r\n") == "-7");
  CHECK(read("-MOVED 1\r\n") == "error MOVED 1");
  CHECK(read("$3\r\nab") == "incomplete");
}

TEST_CASE("replies of no use to the daemon break the connection and nothing else") {
  for (const char* bytes :
       {"*2\r\n:1\r\n:2\r\n", ",1.5\r\n", "#t\r\n", "%1\r\n+a\r\n+b\r\n", "~1\r\n:1\r\n", "?\r\n"}) {
    INFO(bytes);
    CHECK(read(bytes) == "broken");
  }
}
