// The metrics of the server itself: its build and process, its models' states, the queues of the text threads. Any
// thread.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "server/http/server_state.h"

namespace quire {

std::vector<prometheus::MetricFamily> state_families(const ServerState& state);
double resident_bytes();  // of this process

}  // namespace quire
