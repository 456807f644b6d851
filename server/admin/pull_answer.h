// PullAnswer: a download's progress as a response: server-sent events, Ollama's lines, or one final object. One thread
// at a time.
#pragma once

#include <string>

#include "server/api/common/errors.h"
#include "server/run/admin_task.h"

namespace quire {

namespace hub {
struct CachedModel;
struct PullProgress;
}  // namespace hub

class PullAnswer {
 public:
  PullAnswer(PullTask::Form form, bool is_ollama, std::string model)
      : form_(form), is_ollama_(is_ollama), model_(std::move(model)) {}

  const char* content_type() const;
  // The changes since the last call, for streams.
  std::string part(const hub::PullProgress& progress);
  std::string fail(const Error& error, ErrorForm form, const std::string& request_id) const;
  // The stream's end, or the whole response's body.
  std::string end(const hub::CachedModel& result, const std::string& served_name);

 private:
  std::string line(const char* status) const;

  const PullTask::Form form_;
  const bool is_ollama_;
  const std::string model_;
  bool began_ = false;
};

}  // namespace quire
