// The metrics of the server itself: its build and process, its models' states, the queues of the text threads. Any
// thread.
#pragma once

#include <vector>

#include "server/http/server_state.h"
#include "server/metrics/exposition.h"

namespace quire {

std::vector<metrics::MetricFamily> state_families(const ServerState& state);
double resident_bytes();  // resident memory of this process

}  // namespace quire
