#include "server/admin/pull_answer.h"

#include "server/api/common/json.h"
#include "server/api/common/operation.h"
#include "server/hub/pull.h"
#include "server/wire/response.h"

namespace quire {

namespace {

// Digits of a file's checksum that identify it for Ollama's clients.
constexpr std::size_t kShownDigits = 12;

const char* phase_name(hub::PullProgress::Phase phase) {
  switch (phase) {
    case hub::PullProgress::Phase::kListing: return "listing";
    case hub::PullProgress::Phase::kWaiting: return "waiting";
    case hub::PullProgress::Phase::kChecking: return "checking";
    case hub::PullProgress::Phase::kDownloading: return "downloading";
    case hub::PullProgress::Phase::kDone: break;
  }
  return "done";
}

std::string event(const char* name, const Json& data) {
  std::string out;
  append_sse(out, name, dump_json(data));
  return out;
}

}  // namespace

const char* PullAnswer::content_type() const {
  return form_ == PullTask::Form::kEvents ? kEventStream : kLineStream;
}

std::string PullAnswer::line(const char* status) const {
  return dump_json(Json{{"status", status}}) + "\n";
}

std::string PullAnswer::part(const hub::PullProgress& progress) {
  if (form_ == PullTask::Form::kEvents) {
    return event("progress", {{"model", model_},
                              {"status", phase_name(progress.phase)},
                              {"file", progress.file},
                              {"file_number", progress.file_number},
                              {"num_files", progress.num_files},
                              {"completed", progress.num_bytes},
                              {"total", progress.size}});
  }
  std::string out = began_ ? "" : line("pulling manifest");
  began_ = true;
  if (progress.file.empty()) return out;
  const std::string status = "pulling " + progress.checksum.substr(0, kShownDigits);
  return out +
         dump_json(Json{{"status", status},
                        {"digest", "sha256:" + progress.checksum},
                        {"total", progress.file_size},
                        {"completed", progress.file_bytes}}) +
         "\n";
}

std::string PullAnswer::fail(const Error& error, ErrorForm form, const std::string& request_id) const {
  const std::string body = error_body(failure_of(error), form, request_id);
  if (form_ != PullTask::Form::kEvents) return body + "\n";
  std::string out;
  append_sse(out, "error", body);
  return out;
}

std::string PullAnswer::end(const hub::CachedModel& result, const std::string& served_name) {
  Json body{{"status", "success"}};
  if (!is_ollama_) {
    body["model"] = model_;
    body["commit"] = result.commit;
    body["path"] = result.path.string();
    body["bytes"] = result.num_bytes;
    if (!served_name.empty()) body["name"] = served_name;
  }
  switch (form_) {
    case PullTask::Form::kWhole: return dump_json(body);
    case PullTask::Form::kEvents: return event("done", body);
    case PullTask::Form::kLines: break;
  }
  return line("verifying sha256 digest") + line("writing manifest") + line("success");
}

}  // namespace quire
