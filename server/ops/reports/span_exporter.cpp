#include "server/ops/reports/span_exporter.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <random>

#include "core/base/log.h"
#include "server/api/common/json.h"

namespace quire {

namespace {

constexpr std::size_t kMostInBatch = 512;
constexpr std::chrono::milliseconds kGather{500};
constexpr std::chrono::milliseconds kPatience{5000};
constexpr int kServerSpan = 2;
constexpr int kInternalSpan = 1;
constexpr int kErrorStatus = 2;

Json text_attribute(const char* name, const std::string& value) {
  return Json{{"key", name}, {"value", {{"stringValue", value}}}};
}

// OTLP's JSON writes 64-bit integers as strings.
Json number_attribute(const char* name, std::int64_t value) {
  return Json{{"key", name}, {"value", {{"intValue", std::to_string(value)}}}};
}

// The steady clock's times as Unix nanoseconds.
class UnixTime {
 public:
  std::string operator()(Clock::time_point at) const {
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(at - steady_);
    return std::to_string((unix_ + since).count());
  }

 private:
  Clock::time_point steady_ = Clock::now();
  std::chrono::nanoseconds unix_ = std::chrono::system_clock::now().time_since_epoch();
};

Json child_span(const RequestRecord& record, const char* name, Clock::time_point begin, Clock::duration length,
                const UnixTime& unix_time) {
  return Json{{"traceId", record.trace.trace_id},
              {"spanId", random_hex(16)},
              {"parentSpanId", record.trace.span_id},
              {"name", name},
              {"kind", kInternalSpan},
              {"startTimeUnixNano", unix_time(begin)},
              {"endTimeUnixNano", unix_time(begin + length)}};
}

void add_spans(Json& spans, const RequestRecord& record, const UnixTime& unix_time) {
  const OperationTimes& times = record.times;
  Json span{{"traceId", record.trace.trace_id},
            {"spanId", record.trace.span_id},
            {"name", record.method + " " + record.path},
            {"kind", kServerSpan},
            {"startTimeUnixNano", unix_time(times.arrival)},
            {"endTimeUnixNano", unix_time(times.end)}};
  if (!record.trace.parent_id.empty()) span["parentSpanId"] = record.trace.parent_id;
  Json attributes =
      Json::array({text_attribute("http.request.method", record.method), text_attribute("url.path", record.path),
                   number_attribute("http.response.status_code", record.status),
                   text_attribute("quire.request_id", record.request_id)});
  if (!record.key_name.empty()) attributes.push_back(text_attribute("quire.key", record.key_name));
  const OperationSummary& summary = record.summary;
  if (!summary.model.empty()) {
    attributes.push_back(text_attribute("gen_ai.request.model", summary.model));
    attributes.push_back(number_attribute("gen_ai.usage.input_tokens", summary.num_prompt_tokens));
    attributes.push_back(number_attribute("gen_ai.usage.output_tokens", summary.num_generated_tokens));
    attributes.push_back(number_attribute("quire.cached_tokens", summary.num_cached_tokens));
    attributes.push_back(text_attribute("gen_ai.response.finish_reason", summary.finish));
  }
  span["attributes"] = std::move(attributes);
  constexpr int kFirstServerError = 500;
  if (record.status >= kFirstServerError || record.status == 0) span["status"] = {{"code", kErrorStatus}};
  spans.push_back(std::move(span));
  if (times.prefill.count() == 0 && times.decode.count() == 0) return;
  const auto prefill = times.first_token.value_or(times.end) - times.prefill;
  spans.push_back(child_span(record, "queue", prefill - times.queue, times.queue, unix_time));
  spans.push_back(child_span(record, "prefill", prefill, times.prefill, unix_time));
  spans.push_back(child_span(record, "decode", prefill + times.prefill, times.decode, unix_time));
}

}  // namespace

std::string otlp_body(const std::vector<RequestRecord>& records, const std::string& service_name) {
  const UnixTime unix_time;
  Json spans = Json::array();
  for (const RequestRecord& record : records)
    add_spans(spans, record, unix_time);
  Json scope{{"scope", {{"name", "quire"}, {"version", QUIRE_VERSION}}}, {"spans", std::move(spans)}};
  Json resource{{"resource", {{"attributes", Json::array({text_attribute("service.name", service_name)})}}},
                {"scopeSpans", Json::array({std::move(scope)})}};
  return dump_json(Json{{"resourceSpans", Json::array({std::move(resource)})}});
}

HttpUrl parse_collector(const std::string& url) {
  auto address = parse_http_url(url);
  if (!address) {
    throw StartupError(fmt::format("tracing.endpoint: '{}' must be http[s]://HOST[:PORT][/PATH]", url));
  }
  if (address->path.empty()) address->path = "/v1/traces";
  return *std::move(address);
}

WebClient open_collector(const TracingOptions& options) {
  HttpUrl url = parse_collector(options.endpoint);
  if (!url.secure && !options.ca.empty()) {
    throw StartupError("tracing.ca: the endpoint is not https, and shows no certificate");
  }
  try {
    return WebClient(std::move(url), {.ca = options.ca});
  } catch (const StartupError& failure) {
    throw StartupError(fmt::format("tracing.ca: {}", failure.what()));
  }
}

std::string post_spans(const WebClient& collector, std::string body) {
  ClientRequest request{"POST", collector.server().path, {{"Content-Type", "application/json"}}, std::move(body)};
  const auto status = collector.ask(request, kPatience);
  if (!status) return status.error().message;
  return *status / 100 == 2 ? "" : fmt::format("it answered {}", *status);
}

SpanExporter::SpanExporter(const TracingOptions& options)
    : options_(options), collector_(open_collector(options)), thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool SpanExporter::chooses() const {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator) < options_.sample_ratio;
}

void SpanExporter::offer(const RequestRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (std::cmp_greater_equal(queue_.size(), options_.max_queued_spans)) {
      num_dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    queue_.push_back(record);
  }
  changed_.notify_one();
}

std::string SpanExporter::post(const std::vector<RequestRecord>& batch) const {
  try {
    return post_spans(collector_, otlp_body(batch, options_.service_name));
  } catch (const std::bad_alloc&) {
    return "no memory";
  }
}

void SpanExporter::run() {
  pthread_setname_np(pthread_self(), "otlp");
  bool complained = false;
  std::vector<RequestRecord> batch;
  batch.reserve(kMostInBatch);
  while (true) {
    batch.clear();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      // A moment more fills the batch, and spares the collector a request for each span.
      changed_.wait_for(lock, kGather, [this] { return stopping_ || queue_.size() >= kMostInBatch; });
      const std::size_t count = std::min(queue_.size(), kMostInBatch);
      std::move(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count), std::back_inserter(batch));
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    const std::string refusal = post(batch);
    if (refusal.empty()) {
      num_sent_.fetch_add(batch.size(), std::memory_order_relaxed);
      complained = false;
      continue;
    }
    num_dropped_.fetch_add(batch.size(), std::memory_order_relaxed);
    if (!complained) log::warn("tracing: the collector at {} does not take spans: {}", options_.endpoint, refusal);
    complained = true;
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

}  // namespace quire
