#include "server/ops/reports/engine_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/engine/figures/step_trace.h"
#include "server/api/common/json.h"

namespace quire {

namespace {

constexpr int kRequestProcess = 1;
constexpr int kFirstEngine = 2;  // process number of the first engine
constexpr int kStepTrack = 1;

double micros(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

class TraceWriter {
 public:
  explicit TraceWriter(Clock::time_point began) : began_(began) {}

  // Clips the slice to the recorded window.
  void slice(int process, int track, const std::string& name, Clock::time_point begin, Clock::duration length,
             const std::string& arguments = "{}") {
    const Clock::time_point end = begin + length;
    if (end < began_) return;
    begin = std::max(begin, began_);
    length = end - begin;
    add(fmt::format(R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
                    dump_json(Json(name)), process, track, micros(begin - began_), micros(length), arguments));
  }
  void counter(int process, const char* name, Clock::time_point at, std::int64_t value) {
    add(fmt::format(R"({{"name":"{}","ph":"C","pid":{},"ts":{:.3f},"args":{{"value":{}}}}})", name, process,
                    micros(std::max(at, began_) - began_), value));
  }
  void name_process(int process, const std::string& name) {
    add(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", process,
                    dump_json(Json(name))));
  }
  // Returns the track of a request and names it on first use.
  int track_of(const std::string& request) {
    const auto [found, added] = tracks_.try_emplace(request, static_cast<int>(tracks_.size()) + 1);
    if (added) name_track(kRequestProcess, found->second, request);
    return found->second;
  }
  void name_track(int process, int track, const std::string& name) {
    add(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", process, track,
                    dump_json(Json(name))));
  }
  std::string take() { return R"({"displayTimeUnit":"ms","traceEvents":[)" + events_ + "]}"; }

 private:
  void add(const std::string& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event;
  }

  Clock::time_point began_;
  std::string events_;
  std::map<std::string, int> tracks_;
};

// Arguments that `quire simulate --cost` reads: the step's cost terms, its time and the blocks it moved.
std::string arguments_of(const StepRecord& step) {
  const StepTerms& terms = step.terms;
  return fmt::format(R"({{"tokens":{},"sequences":{},"streams":{},"prompt_tokens":{},"stream_ktokens":{},)"
                     R"("prompt_ktokens":{},"ms":{}}})",
                     step.num_tokens, step.entries.size(), terms.num_streams, terms.num_prompt_tokens,
                     terms.stream_ktokens, terms.prompt_ktokens, 1000.0 * step.seconds);
}

void write_step(TraceWriter& writer, int process, const StepRecord& step) {
  Clock::duration whole{};
  for (const Clock::duration phase : step.phases)
    whole += phase;
  writer.slice(process, kStepTrack, "step", step.began, whole, arguments_of(step));
  Clock::time_point at = step.began;
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    writer.slice(process, kStepTrack, kStepPhaseNames[i], at, step.phases[i]);
    at += step.phases[i];
  }
  writer.counter(process, "tokens in step", step.began, step.num_tokens);
  writer.counter(process, "sequences in step", step.began, static_cast<std::int64_t>(step.entries.size()));
  for (const StepRecord::Entry& entry : step.entries) {
    writer.slice(kRequestProcess, writer.track_of(entry.request_id), entry.is_prompt ? "prefill" : "decode", step.began,
                 whole, fmt::format(R"({{"tokens":{},"choice":{}}})", entry.num_tokens, entry.choice));
  }
}

void write_life(TraceWriter& writer, const RequestRecord& record) {
  if (!record.is_call) return;
  const int track = writer.track_of("life of " + record.request_id);
  const OperationTimes& times = record.times;
  const OperationSummary& summary = record.summary;
  writer.slice(kRequestProcess, track, record.method + " " + record.path, times.arrival, times.end - times.arrival,
               dump_json(Json{{"status", record.status},
                              {"key", record.key_name},
                              {"prompt_tokens", summary.num_prompt_tokens},
                              {"cached_tokens", summary.num_cached_tokens},
                              {"generated_tokens", summary.num_generated_tokens},
                              {"finish", summary.finish}}));
  if (!times.first_token) return;
  const Clock::time_point prefill = *times.first_token - times.prefill;
  writer.slice(kRequestProcess, track, "queue", prefill - times.queue, times.queue);
  writer.slice(kRequestProcess, track, "prefill", prefill, times.prefill);
  writer.slice(kRequestProcess, track, "decode", *times.first_token, times.decode);
}

}  // namespace

bool RequestTrace::start() {
  const std::lock_guard lock(mutex_);
  if (active_.exchange(true)) return false;
  records_.clear();
  return true;
}

std::vector<RequestRecord> RequestTrace::stop() {
  const std::lock_guard lock(mutex_);
  active_ = false;
  return std::move(records_);
}

void RequestTrace::add(const RequestRecord& record) {
  if (!active_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (records_.size() < kMostTracedRequests) records_.push_back(record);
}

std::string perfetto_json(const std::vector<EngineSteps>& engines, const std::vector<RequestRecord>& requests,
                          Clock::time_point began) {
  TraceWriter writer(began);
  writer.name_process(kRequestProcess, "requests");
  int process = kFirstEngine;
  for (const EngineSteps& engine : engines) {
    writer.name_process(process, "engine of " + engine.model);
    writer.name_track(process, kStepTrack, "steps");
    for (const StepRecord& step : engine.steps)
      write_step(writer, process, step);
    ++process;
  }
  for (const RequestRecord& record : requests)
    write_life(writer, record);
  return writer.take();
}

}  // namespace quire
