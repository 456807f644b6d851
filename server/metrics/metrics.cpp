#include "server/metrics/metrics.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "server/metrics/registry.h"
#include "server/modules/modules.h"

namespace quire {

namespace {

using metrics::Histogram;

const Histogram::Bounds kLatency = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Histogram::Bounds kGap = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                0.2,    0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0,   7.5, 10.0};
const Histogram::Bounds kEndToEnd = {0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,    5.0,
                                     10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 480.0, 960.0, 1920.0, 7680.0};
const Histogram::Bounds kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
// Flushing this often keeps a stream visible while it runs.
constexpr int kFlushEvery = 64;
constexpr double kFlushAfter = 0.5;  // seconds of gaps
constexpr double kNanosecond = 1e-9;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

metrics::MetricFamily plain(const char* name, const char* help, metrics::MetricType type, double value,
                            const std::string& model) {
  metrics::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  metrics::ClientMetric metric;
  metric.label = {{"model_name", model}};
  metric.value = value;
  family.metric.push_back(std::move(metric));
  return family;
}

// Families of one model's engine, in the order of adding.
class EngineFamilies {
 public:
  explicit EngineFamilies(const std::string& model) : model_(model) {}

  template <class Value>
  void gauge(const char* name, const char* help, Value value) {
    families_.push_back(plain(name, help, metrics::MetricType::kGauge, static_cast<double>(value), model_));
  }
  template <class Value>
  void counter(const char* name, const char* help, Value value) {
    families_.push_back(plain(name, help, metrics::MetricType::kCounter, static_cast<double>(value), model_));
  }
  std::vector<metrics::MetricFamily> take() { return std::move(families_); }

 private:
  const std::string& model_;
  std::vector<metrics::MetricFamily> families_;
};

void add_memory_families(EngineFamilies& out, const EngineStats& engine) {
  const auto share = [](auto part, auto whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  // The resource that runs out first.
  const double used =
      std::max(share(engine.num_blocks_used, engine.num_blocks), share(engine.num_parts_used, engine.num_parts));
  out.gauge("vllm:num_requests_running", "Sequences in the batch", engine.num_running);
  out.gauge("vllm:num_requests_waiting", "Requests that wait for their first step", engine.num_waiting);
  out.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks that sequences use, or of parts for windows, 0 to 1", used);
  out.gauge("vllm:gpu_cache_usage_perc", "The same under its earlier name, which some routers read", used);
  out.gauge("quire:kv_blocks", "KV blocks in the pool", engine.num_blocks);
  out.gauge("quire:kv_blocks_used", "KV blocks that sequences use", engine.num_blocks_used);
  out.gauge("quire:kv_blocks_cached", "KV blocks kept for their content only", engine.num_blocks_cached);
  out.gauge("quire:kv_window_parts", "Parts of KV blocks for layers with a window; 0: those keep as much as others",
            engine.num_parts);
  out.gauge("quire:kv_window_parts_used", "Parts that sequences see through a window", engine.num_parts_used);
  out.gauge("quire:kv_window_parts_cached", "Parts kept for their content only", engine.num_parts_cached);
  out.gauge("quire:kv_blocks_used_peak", "Most KV blocks ever used at once", engine.num_blocks_used_peak);
  out.gauge("quire:device_memory_bytes", "Bytes of the GPU's memory; 0: the model is on the processor",
            engine.device_memory);
  out.gauge("quire:device_memory_bytes_used", "Bytes of the GPU's memory in use, by other processes too",
            engine.device_memory_used);
  out.gauge("quire:device_steps_in_flight_max", "Steps that may be enqueued at once", engine.most_steps_in_flight);
  out.gauge("quire:host_tier_bytes", "Bytes that the host tier may hold; 0: there is none", engine.host_tier_bytes);
  out.gauge("quire:host_tier_bytes_used", "Bytes of KV blocks in the host tier", engine.host_tier_bytes_used);
  out.gauge("quire:disk_tier_bytes", "Bytes that the disk tier may hold; 0: there is none", engine.disk_tier_bytes);
  out.gauge("quire:disk_tier_bytes_used", "Bytes of KV blocks in the disk tier", engine.disk_tier_bytes_used);
  out.counter("quire:kv_event_losses_total",
              "Times that events of the prefix cache were lost before they were published; all that is there follows",
              engine.num_event_losses);
}

void add_shared_store_families(EngineFamilies& out, const SharedStoreStats& store) {
  out.gauge("quire:shared_store_up", "1: the shared store answers; 0: it does not, or there is none", store.is_up);
  out.gauge("quire:shared_store_blocks_waiting", "KV blocks that are to be written to the shared store",
            store.num_waiting);
  out.counter("quire:shared_store_failures_total", "Times that the shared store was given up for a while",
              store.num_failures);
  out.counter("quire:shared_store_blocks_read_total", "KV blocks read from the shared store", store.num_read);
  out.counter("quire:shared_store_blocks_missed_total",
              "KV blocks that were asked of the shared store, and were gone or damaged, or did not come",
              store.num_missed);
  out.counter("quire:shared_store_blocks_written_total", "KV blocks written to the shared store", store.num_written);
  out.counter("quire:shared_store_blocks_lost_total", "KV blocks that the shared store did not take", store.num_lost);
  out.counter("quire:shared_store_read_bytes_total", "Bytes read from the shared store", store.bytes_read);
  out.counter("quire:shared_store_written_bytes_total", "Bytes of KV blocks written to the shared store",
              store.bytes_written);
}

void add_work_families(EngineFamilies& out, const EngineStats& engine) {
  out.counter("vllm:prompt_tokens_total", "Prompt tokens of requests that started", engine.prompt_tokens);
  out.counter("vllm:generation_tokens_total", "Tokens generated", engine.generation_tokens);
  out.counter("vllm:num_preemptions_total", "Sequences preempted because the pool had no free blocks",
              engine.num_preemptions);
  out.counter("quire:preemptions_swapped_total", "Preemptions that left their blocks to the host tier",
              engine.num_swaps);
  out.counter("quire:kv_blocks_restored_total", "KV blocks that came back from a tier below the pool",
              engine.num_blocks_restored);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up", engine.prefix_cache_queries);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found", engine.prefix_cache_hits);
  out.counter("vllm:gpu_prefix_cache_queries_total", "vllm:prefix_cache_queries_total under its earlier name",
              engine.prefix_cache_queries);
  out.counter("vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits_total under its earlier name",
              engine.prefix_cache_hits);
  out.counter("vllm:spec_decode_num_drafts_total", "Times that a sequence's drafted tokens were verified",
              engine.num_drafts);
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified", engine.num_draft_tokens);
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right",
              engine.num_accepted_tokens);
  out.counter("quire:engine_steps_total", "Steps of the engine", engine.num_steps);
  if (is_built(Module::kImages)) {
    out.counter("quire:encoder_seconds_total", "Time that the engine spent encoding images",
                static_cast<double>(engine.encoder_ns) * kNanosecond);
    out.counter("quire:images_encoded_total", "Images whose rows were computed", engine.num_media_encoded);
  }
  out.counter("quire:computed_tokens_total", "Rows that went through the model", engine.computed_tokens);
}

std::vector<metrics::MetricFamily> engine_families(const EngineStats& engine, const std::string& model) {
  EngineFamilies out(model);
  add_memory_families(out, engine);
  if (is_built(Module::kFleet)) add_shared_store_families(out, engine.shared_store);
  add_work_families(out, engine);
  return out.take();
}

template <class Counts, class Bounds>
metrics::ClientMetric histogram_metric(const Counts& counts, const Bounds& bounds, double sum) {
  metrics::ClientMetric metric;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const bool last = i == bounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : static_cast<double>(bounds[i]);
    metric.histogram.bucket.push_back({total, bound});
  }
  metric.histogram.sample_count = total;
  metric.histogram.sample_sum = sum;
  return metric;
}

template <class Counts, class Bounds>
metrics::MetricFamily histogram_of(const char* name, const char* help, const Counts& counts, const Bounds& bounds,
                                   double sum, const std::string& model) {
  metrics::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = metrics::MetricType::kHistogram;
  family.metric.push_back(histogram_metric(counts, bounds, sum));
  family.metric.back().label = {{"model_name", model}};
  return family;
}

metrics::MetricFamily iteration_family(const EngineStats& engine, const std::string& model) {
  return histogram_of("vllm:iteration_tokens_total", "Tokens per engine step", engine.iteration_tokens,
                      kIterationTokenBounds, static_cast<double>(engine.computed_tokens), model);
}

// Positions up to the last one where a draft was ever accepted, at least the first.
metrics::MetricFamily accepted_family(const EngineStats& engine, const std::string& model) {
  metrics::MetricFamily family;
  family.name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  family.help = "Drafted tokens that were right, by their position among those of one verification";
  family.type = metrics::MetricType::kCounter;
  const auto& counts = engine.accepted_by_position;
  const auto end = std::find_if(counts.rbegin(), counts.rend(), [](std::uint64_t count) { return count > 0; }).base();
  const auto num_positions = std::max<std::ptrdiff_t>(end - counts.begin(), 1);
  for (std::ptrdiff_t i = 0; i < num_positions; ++i) {
    metrics::ClientMetric metric;
    metric.label = {{"model_name", model}, {"position", std::to_string(i)}};
    metric.value = static_cast<double>(counts[static_cast<std::size_t>(i)]);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

metrics::MetricFamily step_time_family(const EngineStats& engine, const std::string& model) {
  std::uint64_t sum = 0;
  for (const std::uint64_t phase : engine.phase_ns)
    sum += phase;
  return histogram_of("quire:step_seconds", "Time of an engine step", engine.step_times, kStepTimeBounds,
                      static_cast<double>(sum) * kNanosecond, model);
}

metrics::MetricFamily phase_family(const EngineStats& engine, const std::string& model) {
  metrics::MetricFamily family;
  family.name = "quire:step_phase_seconds";
  family.help = "Time of each phase of an engine step";
  family.type = metrics::MetricType::kHistogram;
  for (std::size_t i = 0; i < kNumStepPhases; ++i) {
    const double sum = static_cast<double>(engine.phase_ns[i]) * kNanosecond;
    family.metric.push_back(histogram_metric(engine.phase_times[i], kPhaseTimeBounds, sum));
    family.metric.back().label = {{"model_name", model}, {"phase", kStepPhaseNames[i]}};
  }
  return family;
}

std::vector<metrics::MetricFamily> all_families(const ModelStats& engine) {
  auto families = engine_families(engine.stats, engine.model);
  families.push_back(iteration_family(engine.stats, engine.model));
  families.push_back(accepted_family(engine.stats, engine.model));
  families.push_back(step_time_family(engine.stats, engine.model));
  families.push_back(phase_family(engine.stats, engine.model));
  return families;
}

// Every engine adds the same families in the same order: they are merged, and labels distinguish the models.
void add_families(std::vector<metrics::MetricFamily>& all, std::vector<metrics::MetricFamily> more) {
  if (all.empty()) return all.swap(more);
  for (std::size_t i = 0; i < all.size(); ++i)
    std::move(more[i].metric.begin(), more[i].metric.end(), std::back_inserter(all[i].metric));
}

LatencyCounts latency_counts(const Histogram& histogram, const Histogram::Bounds& bounds) {
  LatencyCounts latencies{bounds, {}};
  std::uint64_t below = 0;
  for (const auto& bucket : histogram.value().bucket) {
    latencies.counts.push_back(static_cast<double>(bucket.cumulative_count - below));
    below = bucket.cumulative_count;
  }
  return latencies;
}

// Histograms of the requests to one model.
struct RequestHistograms {
  metrics::Registry& registry;
  const std::string model;

  RequestHistograms(metrics::Registry& in_registry, std::string of_model)
      : registry(in_registry), model(std::move(of_model)) {}

  // Families of one name are merged: each model adds its labels.
  Histogram& histogram(const char* name, const char* help, const Histogram::Bounds& bounds) {
    return registry.family(name, help, metrics::MetricType::kHistogram).histogram({{"model_name", model}}, bounds);
  }
  void count_success(const std::string& finish) {
    registry
        .family("vllm:request_success_total",
                "Requests that ended, by reason; abort: the client left, a deadline passed or the server drained; "
                "error: the server failed",
                metrics::MetricType::kCounter)
        .counter({{"finished_reason", finish}, {"model_name", model}})
        .increment();
  }

  Histogram& first_token = histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", kLatency);
  Histogram& gap = histogram("vllm:inter_token_latency_seconds", "Between a stream's tokens", kGap);
  Histogram& end_to_end = histogram("vllm:e2e_request_latency_seconds", "From arrival to the end", kEndToEnd);
  Histogram& queue = histogram("vllm:request_queue_time_seconds", "Waiting for the first step", kEndToEnd);
  Histogram& prefill = histogram("vllm:request_prefill_time_seconds", "Computing the prompt", kEndToEnd);
  Histogram& decode = histogram("vllm:request_decode_time_seconds", "From the first token to the last", kEndToEnd);
  Histogram& inference = histogram("vllm:request_inference_time_seconds", "From the first step to the end", kEndToEnd);
  Histogram& prompt_tokens = histogram("vllm:request_prompt_tokens", "Prompt tokens per request", kTokens);
  Histogram& generation_tokens = histogram("vllm:request_generation_tokens", "Generated tokens per request", kTokens);
  Histogram& params_n = histogram("vllm:request_params_n", "The field n", {1, 2, 5, 10, 20});
  Histogram& params_max_tokens = histogram("vllm:request_params_max_tokens", "The field max_tokens", kTokens);
};

}  // namespace

struct Metrics::Families {
  metrics::Registry registry;

  std::mutex model_mutex;
  std::map<std::string, RequestHistograms> of_models;

  // The result stays valid. Admins choose the names, so their number is limited.
  RequestHistograms& of(const std::string& model) {
    const std::lock_guard lock(model_mutex);
    const auto known = of_models.find(model);
    if (known != of_models.end()) return known->second;
    const std::string label = of_models.size() < kMaxModelLabels ? model : "(other)";
    return of_models.try_emplace(label, registry, label).first->second;
  }

  metrics::Family& counters(const char* name, const char* help) {
    return registry.family(name, help, metrics::MetricType::kCounter);
  }
  metrics::Family& responses = counters("quire:http_responses_total", "Responses by status");
  metrics::Family& refusals = counters("quire:refusals_total", "Requests refused, by the error's code");
  metrics::Family& key_requests = counters("quire:key_requests_total", "Responses by API key and status");
  metrics::Family& key_prompt_tokens = counters("quire:key_prompt_tokens_total", "Prompt tokens by API key");
  metrics::Family& key_cached_tokens =
      counters("quire:key_cached_tokens_total", "Prompt tokens found in the cache by API key");
  metrics::Family& key_generation_tokens = counters("quire:key_generation_tokens_total", "Generated tokens by API key");
  std::mutex key_labels_mutex;
  std::set<std::string> key_labels;

  // Names come from the configuration, but reloads may add ever new ones.
  std::string key_label(const std::string& name) {
    const std::lock_guard lock(key_labels_mutex);
    if (key_labels.count(name) > 0) return name;
    if (key_labels.size() >= kMaxKeyLabels) return "(other)";
    key_labels.insert(name);
    return name;
  }

  metrics::Counter& refused_connections =
      counters("quire:http_connections_refused_total", "Connections closed for being too many").counter({});
  metrics::Gauge& connections =
      registry.family("quire:http_connections", "Open connections", metrics::MetricType::kGauge).gauge({});
};

Metrics::Metrics() : families_(std::make_shared<Families>()) {}
Metrics::~Metrics() = default;

Metrics::GapRecorder::~GapRecorder() {
  try {
    flush();
  } catch (const std::bad_alloc&) {  // without memory some gaps are not counted
  }
}

void Metrics::GapRecorder::record(double gap) {
  if (counts_.empty()) counts_.resize(kGap.size() + 1);
  since_flush_ += gap;
  const auto bucket = std::lower_bound(kGap.begin(), kGap.end(), gap) - kGap.begin();
  counts_[static_cast<std::size_t>(bucket)] += 1.0;
  sum_ += gap;
  if (++pending_ >= kFlushEvery || since_flush_ >= kFlushAfter) flush();
}

void Metrics::GapRecorder::flush() {
  if (pending_ == 0) return;
  metrics_.families_->of(model_).gap.observe_all(counts_, sum_);
  counts_.assign(counts_.size(), 0.0);
  sum_ = 0.0;
  since_flush_ = 0.0;
  pending_ = 0;
}

void Metrics::count_response(int status) {
  families_->responses.counter({{"code", std::to_string(status)}}).increment();
}
void Metrics::count_refusal(const std::string& code) {
  families_->refusals.counter({{"code", code}}).increment();
}
void Metrics::connection_opened() {
  families_->connections.increment();
}
void Metrics::connection_refused() {
  families_->refused_connections.increment();
}
void Metrics::connection_closed() {
  families_->connections.decrement();
}

void Metrics::key_request(const RequestRecord& record) {
  if (record.key_name.empty()) return;
  const std::string key = families_->key_label(record.key_name);
  families_->key_requests.counter({{"key", key}, {"code", std::to_string(record.status)}}).increment();
  key_tokens(record);
}

void Metrics::key_tokens(const RequestRecord& record) {
  if (record.key_name.empty()) return;
  const std::string key = families_->key_label(record.key_name);
  const auto count = [&](metrics::Family& family, std::int64_t amount) {
    if (amount > 0) family.counter({{"key", key}}).increment(static_cast<double>(amount));
  };
  count(families_->key_prompt_tokens, record.summary.num_prompt_tokens);
  count(families_->key_cached_tokens, record.summary.num_cached_tokens);
  count(families_->key_generation_tokens, record.summary.num_generated_tokens);
}

void Metrics::first_token(const std::string& model, double seconds) {
  families_->of(model).first_token.observe(seconds);
}

LatencyCounts Metrics::first_token_counts(const std::string& model) const {
  return latency_counts(families_->of(model).first_token, kLatency);
}

LatencyCounts Metrics::gap_counts(const std::string& model) const {
  return latency_counts(families_->of(model).gap, kGap);
}

void Metrics::finished(const OperationSummary& summary, const OperationTimes& times) {
  RequestHistograms& model = families_->of(summary.model);
  model.end_to_end.observe(seconds(times.end - times.arrival));
  model.prompt_tokens.observe(static_cast<double>(summary.num_prompt_tokens));
  model.generation_tokens.observe(static_cast<double>(summary.num_generated_tokens));
  model.count_success(summary.finish);
}

std::function<void(const FinishInfo&)> Metrics::end_recorder(const std::string& model) {
  return [families = families_, &histograms = families_->of(model)](const FinishInfo& info) {
    histograms.queue.observe(seconds(info.queue_time));
    histograms.prefill.observe(seconds(info.prefill_time));
    histograms.decode.observe(seconds(info.decode_time));
    histograms.inference.observe(seconds(info.prefill_time + info.decode_time));
  };
}

void Metrics::request_params(const std::string& model, const Request& request) {
  RequestHistograms& histograms = families_->of(model);
  histograms.params_n.observe(request.num_choices);
  histograms.params_max_tokens.observe(request.sampling.max_tokens);
}

std::string Metrics::expose(const std::vector<ModelStats>& engines, const std::string& model, bool with_keys,
                            std::vector<metrics::MetricFamily> of_server, const SpanExporter* spans) {
  if (!model.empty()) families_->of(model);  // exists before the first request, as dashboards expect
  for (const ModelStats& engine : engines)
    families_->of(engine.model);
  auto families = families_->registry.collect();
  if (!with_keys) std::erase_if(families, [](const auto& family) { return family.name.starts_with("quire:key_"); });
  std::vector<metrics::MetricFamily> of_engines;
  for (const ModelStats& engine : engines)
    add_families(of_engines, all_families(engine));
  std::move(of_engines.begin(), of_engines.end(), std::back_inserter(families));
  std::move(of_server.begin(), of_server.end(), std::back_inserter(families));
  if (spans != nullptr) {
    using Type = metrics::MetricType;
    families.push_back(plain("quire:spans_sent_total", "Requests told to the trace collector", Type::kCounter,
                             static_cast<double>(spans->num_sent()), model));
    families.push_back(plain("quire:spans_dropped_total", "Requests that the trace collector did not take",
                             Type::kCounter, static_cast<double>(spans->num_dropped()), model));
  }
  return metrics::exposition_text(families);
}

}  // namespace quire
