// Metrics: the counters and histograms of /metrics, under vLLM's names, so that existing dashboards work. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/figures/engine_stats.h"
#include "core/request/request.h"
#include "server/api/common/operation.h"
#include "server/metrics/exposition.h"
#include "server/ops/reports/request_record.h"
#include "server/ops/reports/span_exporter.h"
#include "server/ops/reports/status_history.h"

namespace quire {

inline constexpr std::size_t kMaxKeyLabels = 200;
inline constexpr std::size_t kMaxModelLabels = 200;  // renamed models count, so more than can be loaded

struct ModelStats {
  std::string model;
  EngineStats stats;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Inter-token gaps of one stream, collected without a lock and added to the metrics at once.
  class GapRecorder {
   public:
    GapRecorder(Metrics& metrics, std::string model) : metrics_(metrics), model_(std::move(model)) {}
    ~GapRecorder();
    GapRecorder(const GapRecorder&) = delete;
    GapRecorder& operator=(const GapRecorder&) = delete;
    void record(double seconds);
    void flush();

   private:
    Metrics& metrics_;
    std::string model_;
    std::vector<double> counts_;
    double sum_ = 0.0;
    double since_flush_ = 0.0;
    int pending_ = 0;
  };

  void count_response(int status);
  // `code` is one of the server's own codes, never a client's text.
  void count_refusal(const std::string& code);
  void connection_opened();
  void connection_closed();
  void connection_refused();
  // Counts a request for its key. At most kMaxKeyLabels keys have a label of their own, the rest share one.
  void key_request(const RequestRecord& record);
  void key_tokens(const RequestRecord& record);
  // Records the latency of a stream's first token, as it is sent.
  void first_token(const std::string& model, double seconds);
  // First-token latencies since the start.
  LatencyCounts first_token_counts(const std::string& model) const;
  LatencyCounts gap_counts(const std::string& model) const;
  // Metrics of requests that ended, aborted ones included, by model. At most kMaxModelLabels models have a label of
  // their own.
  void finished(const OperationSummary& summary, const OperationTimes& times);
  // Returns a callback that records the engine's times as each choice of a request ends, aborted or not: any thread,
  // even after its client has left and these metrics are gone.
  std::function<void(const FinishInfo&)> end_recorder(const std::string& model);
  void request_params(const std::string& model, const Request& request);

  // The text exposition; `engines`: the engines' statistics. `model` labels families that belong to no engine. Without
  // `with_keys` no API key is named.
  std::string expose(const std::vector<ModelStats>& engines, const std::string& model, bool with_keys,
                     std::vector<metrics::MetricFamily> of_server, const SpanExporter* spans = nullptr);

 private:
  struct Families;
  std::shared_ptr<Families> families_;
};

}  // namespace quire
