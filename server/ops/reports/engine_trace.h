// EngineTrace: records the engines' steps and the requests that end meanwhile, as a file for Perfetto or
// chrome://tracing (the Trace Event Format). Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "server/ops/reports/request_record.h"

namespace quire {

struct StepRecord;

inline constexpr std::size_t kMostTracedSteps = 200'000;
inline constexpr std::size_t kMostTracedRequests = 20'000;

// Requests that ended during a recording; outside a recording nothing is kept.
class RequestTrace {
 public:
  // Clears the last recording and starts one. Returns false if one is in progress.
  bool start();
  std::vector<RequestRecord> stop();
  void add(const RequestRecord& record);

 private:
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  std::vector<RequestRecord> records_;
};

// Recorded steps of one model's engine.
struct EngineSteps {
  std::string model;
  std::vector<StepRecord> steps;
};

// Makes a process for each engine, with its steps and their phases, and one for all requests, with a track for each:
// its share of every step and, if it ended during the recording, its whole life. Times are microseconds since `began`;
// earlier events are not shown.
std::string perfetto_json(const std::vector<EngineSteps>& engines, const std::vector<RequestRecord>& requests,
                          Clock::time_point began);

}  // namespace quire
