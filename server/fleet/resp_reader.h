// RespReader: replies of a Redis or Valkey server, parsed by hiredis. One thread at a time. Invariant: a reply is text,
// bytes, a number, nothing or an error, of at most max_bytes. Anything else, such as an array, which no command here
// returns, breaks the protocol: no further reply is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct redisReader;
struct redisReplyObjectFunctions;

namespace quire {

struct RespReply {
  enum class Kind : std::uint8_t { kNothing, kText, kNumber, kError };
  Kind kind = Kind::kNothing;
  std::string text{};  // set for kText and kError
  std::int64_t number = 0;
};

class RespReader {
 public:
  explicit RespReader(std::size_t max_bytes);
  ~RespReader();
  RespReader(const RespReader&) = delete;
  RespReader& operator=(const RespReader&) = delete;

  // Returns false if the bytes so far cannot be a reply; why() then gives the reason.
  bool feed(std::span<const char> bytes);
  // The next whole reply; null if none has arrived yet or the protocol is broken.
  std::unique_ptr<RespReply> next();
  const std::string& why() const { return why_; }  // empty: nothing is wrong

 private:
  const std::size_t max_bytes_;
  const std::unique_ptr<redisReplyObjectFunctions> functions_;  // constructors of replies; must outlive the reader
  redisReader* const reader_;
  std::string why_;
};

}  // namespace quire
