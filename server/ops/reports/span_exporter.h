// SpanExporter: sends finished requests as spans to an OpenTelemetry collector (OTLP over HTTP or HTTPS, in JSON), from
// a thread of its own. offer(): any thread; never waits: spans beyond the queue's size are dropped and counted. A
// collector that does not answer costs only its spans.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/client/web_client.h"
#include "server/ops/reports/request_record.h"

namespace quire {

struct TracingOptions {
  std::string endpoint;  // "http://host:4318/v1/traces"; empty: nothing is exported
  std::string ca;        // a PEM file of the authorities that an https endpoint must convince; empty: the system's
  std::string service_name = "quire";
  double sample_ratio = 1.0;  // share of new traces; a caller's decision is kept
  std::int64_t max_queued_spans = 4096;
};

// Parses the endpoint's URL; a URL without a path gets OTLP's path. Throws StartupError for an unusable URL.
HttpUrl parse_collector(const std::string& url);
// Opens the collector that receives spans. Throws StartupError for the URL or the file of authorities.
WebClient open_collector(const TracingOptions& options);
// Returns an empty text if the collector took the body, else the reason. Waits for a few seconds at most.
std::string post_spans(const WebClient& collector, std::string body);

// The OTLP request for these requests: a span each, with spans for queue, prefill and decode below it.
std::string otlp_body(const std::vector<RequestRecord>& records, const std::string& service_name);

class SpanExporter {
 public:
  // Throws StartupError for an unusable endpoint, named in the message.
  explicit SpanExporter(const TracingOptions& options);
  // Sends the queued spans, if the collector takes them within a second, and ends.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Returns whether to export a trace that begins here.
  bool chooses() const;
  void offer(const RequestRecord& record);
  std::uint64_t num_sent() const { return num_sent_.load(std::memory_order_relaxed); }
  std::uint64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  void run();
  // Empty: the collector took the spans.
  std::string post(const std::vector<RequestRecord>& batch) const;

  const TracingOptions options_;
  const WebClient collector_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestRecord> queue_;
  bool stopping_ = false;
  std::atomic<std::uint64_t> num_sent_{0};
  std::atomic<std::uint64_t> num_dropped_{0};
  std::thread thread_;
};

}  // namespace quire
