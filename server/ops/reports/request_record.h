// RequestRecord: the data of one finished HTTP request, from which the access log, the metrics of keys and the exported
// spans are made. log_access() writes its line. Plain value; any thread.
#pragma once

#include <optional>
#include <string>

#include "core/request/request.h"
#include "server/api/common/operation.h"
#include "server/ops/reports/trace_context.h"

namespace quire {

// Times of one operation's events. The engine's times are those of the slowest choice.
struct OperationTimes {
  Clock::time_point arrival{};
  std::optional<Clock::time_point> first_token;
  Clock::time_point end{};
  Clock::duration queue{};
  Clock::duration prefill{};
  Clock::duration decode{};
};

struct RequestRecord {
  std::string request_id;
  std::string key_name;  // "" where no key was asked for
  std::string peer;
  std::string method;  // empty, like the path, if the head was unreadable
  std::string path;
  int status = 0;        // 0: the client left before an answer
  std::string error;     // code of the error in its answer; empty: none
  bool is_call = false;  // calls a model, unlike a page
  OperationTimes times;
  TraceContext trace;
  OperationSummary summary;
};

enum class AccessLog { kOff, kApi, kAll };  // kApi: requests to models, and all refusals

void log_access(const RequestRecord& record, AccessLog mode);

}  // namespace quire
