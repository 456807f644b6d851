// StopMatcher: holds text back while it could be the start of a stop string. ChoiceStream: turns one choice's events
// into text that may be shown, and finds its stop strings and its end. One thread at a time. Invariant: the shown texts
// together are the choice's whole text, cut at the first stop string.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/request/request.h"
#include "core/text/detokenizer.h"

namespace quire {

class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {}

  // Returns the text that can be shown now and was not returned before.
  std::string push(std::string_view text);
  // Returns the text still held back, at the end of the output.
  std::string finish();
  // The stop string that was found; after it everything is swallowed.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  std::optional<std::string> matched_;
};

struct ChoiceStreamOptions {
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool at_text_start = false;  // the choice's text starts a text, nothing stands before it
};

class ChoiceStream {
 public:
  ChoiceStream(const Tokenizer& tokenizer, const ChoiceStreamOptions& options);

  // The newly shown text. Events after finished() are swallowed. Takes the event's tokens and finish into account.
  std::string push(const OutputEvent& event);

  bool finished() const { return reason_.has_value(); }
  FinishReason reason() const { return reason_.value_or(FinishReason::kAbort); }
  bool stopped_by_text() const { return stops_.matched().has_value(); }
  const std::optional<std::string>& matched_stop() const { return stops_.matched(); }
  const std::optional<FinishInfo>& finish_info() const { return info_; }
  std::int32_t num_tokens() const { return num_tokens_; }

 private:
  Detokenizer detokenizer_;
  StopMatcher stops_;
  std::optional<FinishReason> reason_;
  std::optional<FinishInfo> info_;
  std::int32_t num_tokens_ = 0;
};

}  // namespace quire
