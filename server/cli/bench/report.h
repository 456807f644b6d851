// The results of a load run, as a table and as JSON. Plain values; one thread at a
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json/json_fwd.h"

namespace quire::bench {

// A finished request, times in seconds since the run began.
struct RequestRecord {
  bool ok = false;
  int status = 0;     // HTTP status; 0: no answer
  std::string error;  // empty if ok
  double sent = 0;
  double finished = 0;
  std::vector<double> events;  // arrival of each event with text or a token id
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t num_images = 0;     // sent in the prompt
  std::int64_t output_tokens = 0;  // the server's own count, else the number of events with text
};

struct Summary {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double mean = 0;
};

// Percentiles by linear interpolation; zeros for no values.
Summary summarize(std::vector<double> values);

struct ServeReport {
  std::int64_t num_requests = 0;
  std::int64_t num_errors = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t num_images = 0;             // images in answered prompts
  std::int64_t num_events = 0;             // events with text or a token id
  double seconds = 0;                      // from the first request sent to the last one finished
  Summary ttft;                            // seconds to the first such event
  Summary itl;                             // seconds between such events
  Summary e2e;                             // seconds to the end of the answer
  std::vector<std::string> sample_errors;  // the first few, distinct
};

ServeReport make_report(const std::vector<RequestRecord>& records);
std::string to_table(const ServeReport& report);
Json to_json(const ServeReport& report);

}  // namespace quire::bench
