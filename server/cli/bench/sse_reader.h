// SseReader: the `data:` payloads of a server-sent event stream that arrives in arbitrary pieces. One thread at a time.
// Source: WHATWG HTML, server-sent events (multi-line data is joined by newlines; comments and other fields are passed
// over).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::bench {

class SseReader {
 public:
  // The payloads of the events that became complete with these bytes.
  std::vector<std::string> push(std::string_view bytes);

 private:
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace quire::bench
