#include "server/cli/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/json/json.h"

namespace quire::bench {

namespace {

constexpr std::size_t kMaxSampleErrors = 5;

double percentile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

std::string milliseconds_row(const char* name, const Summary& summary) {
  return fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", name, summary.p50 * 1e3, summary.p90 * 1e3,
                     summary.p99 * 1e3, summary.mean * 1e3);
}

Json milliseconds_json(const Summary& summary) {
  return {
      {"p50", summary.p50 * 1e3}, {"p90", summary.p90 * 1e3}, {"p99", summary.p99 * 1e3}, {"mean", summary.mean * 1e3}};
}

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values)
    sum += value;
  return {percentile(values, 0.5), percentile(values, 0.9), percentile(values, 0.99),
          sum / static_cast<double>(values.size())};
}

ServeReport make_report(const std::vector<RequestRecord>& records) {
  ServeReport report;
  report.num_requests = static_cast<std::int64_t>(records.size());
  std::vector<double> ttft;
  std::vector<double> itl;
  std::vector<double> e2e;
  double begin = INFINITY;
  double end = 0;
  for (const RequestRecord& record : records) {
    begin = std::min(begin, record.sent);
    end = std::max(end, record.finished);
    if (!record.ok) {
      ++report.num_errors;
      auto& samples = report.sample_errors;
      if (samples.size() < kMaxSampleErrors &&
          std::find(samples.begin(), samples.end(), record.error) == samples.end()) {
        samples.push_back(record.error);
      }
      continue;
    }
    report.prompt_tokens += record.prompt_tokens;
    report.cached_tokens += record.cached_tokens;
    report.output_tokens += record.output_tokens;
    report.num_images += record.num_images;
    report.num_events += std::ssize(record.events);
    e2e.push_back(record.finished - record.sent);
    if (!record.events.empty()) ttft.push_back(record.events.front() - record.sent);
    for (std::size_t i = 1; i < record.events.size(); ++i)
      itl.push_back(record.events[i] - record.events[i - 1]);
  }
  report.seconds = end > begin ? end - begin : 0;
  report.ttft = summarize(std::move(ttft));
  report.itl = summarize(std::move(itl));
  report.e2e = summarize(std::move(e2e));
  return report;
}

std::string to_table(const ServeReport& report) {
  if (report.num_requests > 0 && report.num_errors == report.num_requests) {
    std::string text = fmt::format("every request failed, of {} in {:.2f} s: nothing was measured\n",
                                   report.num_requests, report.seconds);
    for (const std::string& error : report.sample_errors)
      text += "error: " + error + '\n';
    return text;
  }
  std::string text = fmt::format(
      "requests {}   errors {}   seconds {:.2f}\n"
      "output tokens {} ({:.1f}/s)   prompt tokens {} ({:.1f}/s)   cached {}   requests/s {:.2f}\n",
      report.num_requests, report.num_errors, report.seconds, report.output_tokens,
      per_second(report.output_tokens, report.seconds), report.prompt_tokens,
      per_second(report.prompt_tokens, report.seconds), report.cached_tokens,
      per_second(report.num_requests - report.num_errors, report.seconds));
  if (report.num_images > 0)
    text += fmt::format("images {} ({:.2f}/s)\n", report.num_images, per_second(report.num_images, report.seconds));
  text += fmt::format("{:<22}{:>10}{:>10}{:>10}{:>10}\n", "ms", "p50", "p90", "p99", "mean");
  text += milliseconds_row("time to first token", report.ttft);
  text += milliseconds_row("inter-token", report.itl);
  text += milliseconds_row("end to end", report.e2e);
  for (const std::string& error : report.sample_errors)
    text += "error: " + error + '\n';
  return text;
}

Json to_json(const ServeReport& report) {
  return {{"requests", report.num_requests},
          {"errors", report.num_errors},
          {"seconds", report.seconds},
          {"output_tokens", report.output_tokens},
          {"output_tokens_per_second", per_second(report.output_tokens, report.seconds)},
          {"events", report.num_events},
          {"prompt_tokens", report.prompt_tokens},
          {"prompt_tokens_per_second", per_second(report.prompt_tokens, report.seconds)},
          {"cached_tokens", report.cached_tokens},
          {"images", report.num_images},
          {"images_per_second", per_second(report.num_images, report.seconds)},
          {"requests_per_second", per_second(report.num_requests - report.num_errors, report.seconds)},
          {"ttft_ms", milliseconds_json(report.ttft)},
          {"itl_ms", milliseconds_json(report.itl)},
          {"e2e_ms", milliseconds_json(report.e2e)},
          {"sample_errors", report.sample_errors}};
}

}  // namespace quire::bench
