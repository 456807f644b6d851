// The access log: one line for each request, when it is over. Pure function over the process log; any thread.
#pragma once

#include "server/ops/reports/request_record.h"

namespace quire {

enum class AccessLog { kOff, kApi, kAll };  // kApi: requests to models, and all refusals

void log_access(const RequestRecord& record, AccessLog mode);

}  // namespace quire
