// The cache salt: everything that a block's content depends on besides model and tokens, as one string: the client's
// salt, the key that isolates its blocks, the adapter's content. Pure; any thread. Invariant: two strings are equal
// only if all three parts are. A client's salt may hold any character; the other parts stand at the end and contain no
// NUL.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// key_name: null if blocks are not isolated by key. adapter_key: null without an adapter.
inline std::string cache_salt(const std::string& own, const std::string* key_name, const std::string* adapter_key) {
  if (key_name == nullptr && adapter_key == nullptr && own.find('\0') == std::string::npos) return own;
  std::string salt = own + '\0';
  if (key_name != nullptr) salt += *key_name;
  salt += '\0';
  if (adapter_key != nullptr) salt += *adapter_key;
  return salt;
}

// The adapter's content key; empty: none.
inline std::string_view adapter_in_salt(std::string_view salt) {
  const std::size_t at = salt.rfind('\0');
  return at == std::string_view::npos ? std::string_view{} : salt.substr(at + 1);
}

}  // namespace quire
