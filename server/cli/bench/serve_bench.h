// `quire bench serve`: puts load on any OpenAI-compatible server and measures what its users would see. One thread at a
// time. Closed loop: `concurrency` clients, each sending its next request when its last one ended. Open loop: requests
// leave at their planned arrival, regardless of the number under way. Prompts are completions, those with images chats.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "server/cli/bench/report.h"
#include "server/cli/bench/workload.h"

namespace quire::bench {

struct ServeBenchOptions {
  std::string url = "http://127.0.0.1:8080";  // scheme, host, port; the path is added
  std::string model;                          // empty: the first in /v1/models
  std::string api_key;
  int concurrency = 32;
  double temperature = 0;
  double timeout_seconds = 3600;  // limit for one request
  bool token_ids = false;         // asks for token ids, so that tokens without text count
};

struct Progress {
  std::size_t done = 0;
  std::size_t total = 0;
  std::int64_t events = 0;  // events with text so far
  double seconds = 0;
};

// Runs the whole workload; `progress` is called about once a second. Errors: no server at the URL, no model listed.
Result<std::vector<RequestRecord>> run_serve_bench(const ServeBenchOptions& options,
                                                   const std::vector<PlannedRequest>& workload,
                                                   const std::function<void(const Progress&)>& progress);

}  // namespace quire::bench
