#include "server/cli/bench/sse_reader.h"

#include <utility>

namespace quire::bench {

std::vector<std::string> SseReader::push(std::string_view bytes) {
  constexpr std::string_view kField = "data:";
  std::vector<std::string> events;
  for (const char c : bytes) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.empty()) {
      if (has_data_) events.push_back(std::exchange(data_, {}));
      has_data_ = false;
    } else if (line_.compare(0, kField.size(), kField) == 0) {
      const std::size_t value = kField.size() + (line_.size() > kField.size() && line_[kField.size()] == ' ' ? 1 : 0);
      if (has_data_) data_ += '\n';
      data_.append(line_, value);
      has_data_ = true;
    }
    line_.clear();
  }
  return events;
}

}  // namespace quire::bench
