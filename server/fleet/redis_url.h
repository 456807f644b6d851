// RedisUrl: a parsed URL of redis or rediss: a store's address and user. Value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct RedisUrl {
  bool secure = false;
  std::string user;      // empty: the default user
  std::string password;  // empty: no AUTH
  std::string host;
  std::string port;
  std::int32_t database = 0;

  // host:port/database, for messages: without the password.
  std::string place() const;
};

// Returns nothing unless the text is redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE].
std::optional<RedisUrl> parse_redis_url(std::string_view url);

}  // namespace quire
