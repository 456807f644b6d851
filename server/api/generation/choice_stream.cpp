#include "server/api/generation/choice_stream.h"

#include <algorithm>
#include <utility>

namespace quire {

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(text);
  held_.append(text);
  std::size_t first = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at < first) {
      first = at;
      found = &stop;
    }
  }
  if (found != nullptr) {
    matched_ = *found;
    return held_.substr(0, include_ ? first + found->size() : first);
  }
  // Holds back the longest end of the text that may begin a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).substr(held_.size() - length) == std::string_view(stop).substr(0, length))
        keep = length;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::finish() {
  return matched_ ? std::string() : std::exchange(held_, {});
}

ChoiceStream::ChoiceStream(const Tokenizer& tokenizer, const ChoiceStreamOptions& options)
    : detokenizer_(tokenizer, DetokenizerOptions{options.skip_special_tokens, options.at_text_start}),
      stops_(options.stop, options.include_stop) {}

std::string ChoiceStream::push(const OutputEvent& event) {
  std::string shown;
  for (std::size_t i = 0; i < event.tokens.size() && !finished(); ++i) {
    ++num_tokens_;
    shown += stops_.push(detokenizer_.push(event.tokens[i]));
    if (stops_.matched()) reason_ = FinishReason::kStop;
  }
  if (!event.finish || finished()) return shown;
  shown += stops_.push(detokenizer_.finish());
  shown += stops_.finish();
  info_ = event.finish;
  reason_ = stops_.matched() ? FinishReason::kStop : event.finish->reason;
  return shown;
}

}  // namespace quire
