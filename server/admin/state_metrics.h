// The metrics of the server itself: its build and process, its models' states, the queues of the text threads. Any
// thread.
#pragma once

#include <vector>

#include "server/metrics/exposition.h"
#include "server/state/server_state.h"

namespace quire {

std::vector<metrics::MetricFamily> state_families(const ServerState& state);
double resident_bytes();  // resident memory of this process

}  // namespace quire
