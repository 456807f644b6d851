// RequestHead: one HTTP/1.1 request line with its header fields, already checked. Plain value; any thread.
// Invariants: names are lower case; at most one of content_length and chunked is set; the target is printable ASCII.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct HeaderField {
  std::string name;
  std::string value;
};

struct RequestHead {
  std::string method;
  std::string target;     // the request line's own text
  std::string sent_path;  // without query, fragment, scheme and authority
  std::string path;       // the sent path, percent-decoded: UTF-8 without control characters
  std::string query;
  int minor_version = 1;
  std::vector<HeaderField> fields;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;
  bool asks_socket = false;  // asks for a WebSocket
  bool names_host = false;   // by a Host field or an absolute target

  // The value of the first field of that (lower-case) name; empty if there is none.
  std::string_view field(std::string_view name) const {
    for (const HeaderField& entry : fields) {
      if (entry.name == name) return entry.value;
    }
    return {};
  }
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

// The reason why a request was refused before routing. The connection closes after it.
struct HttpRefusal {
  int status = 400;
  const char* code = "bad_request";
  std::string message;
};

}  // namespace quire
