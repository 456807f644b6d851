#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/sim/report.h"

namespace quire::sim {

namespace {

constexpr double kWidth = 900.0;
constexpr double kHeight = 180.0;
constexpr double kMargin = 46.0;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

struct Series {
  const char* name;
  const char* color;
  std::vector<std::pair<double, double>> points;
};

// Lines over a common x axis, with the largest values written at the axes.
std::string plot(const std::string& title, const std::string& x_name, const std::vector<Series>& series) {
  double x_max = 1e-9;
  double y_max = 1e-9;
  for (const Series& each : series) {
    for (const auto& [x, y] : each.points) {
      x_max = std::max(x_max, x);
      y_max = std::max(y_max, y);
    }
  }
  std::string out = fmt::format("<figure><figcaption>{}", escaped(title));
  for (const Series& each : series)
    out += fmt::format(R"( <b style="color:{}">{}</b>)", each.color, escaped(each.name));
  out += fmt::format(R"(</figcaption><svg viewBox="0 0 {} {}" role="img">)", kWidth, kHeight);
  const double bottom = kHeight - 20.0;
  out += fmt::format(R"(<path class="axis" d="M{0} 6V{1}H{2}"/><text x="{3}" y="14" text-anchor="end">{4:.4g}</text>)",
                     kMargin, bottom, kWidth - 6.0, kMargin - 4.0, y_max);
  out += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{:.4g} {}</text>)", kWidth - 6.0, kHeight - 5.0, x_max,
                     x_name);
  for (const Series& each : series) {
    std::string path;
    for (const auto& [x, y] : each.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", kMargin + x / x_max * (kWidth - kMargin - 6.0),
                          bottom - y / y_max * (bottom - 6.0));
    }
    out += fmt::format(R"(<path fill="none" stroke="{}" d="{}"/>)", each.color, path);
  }
  return out + "</svg></figure>\n";
}

Series over_time(const char* name, const char* color, const SimReport& report, double TimelinePoint::*field) {
  Series series{name, color, {}};
  for (const TimelinePoint& point : report.timeline)
    series.points.emplace_back(point.time_s, point.*field);
  return series;
}

Series percentiles(const char* name, const char* color, const Distribution& values) {
  Series series{name, color, {}};
  for (int percent = 1; percent <= 99; ++percent)
    series.points.emplace_back(percent, values.percentile(percent));
  return series;
}

std::string case_section(const SimCase& each) {
  const SimReport& r = each.report;
  std::string out = fmt::format("<h2>{}</h2>\n", escaped(each.name));
  out += fmt::format(
      "<p>{} requests, {} prompt and {} output tokens in {:.0f} simulated seconds on {} replica(s) of {} blocks of {} "
      "tokens; "
      "{} steps, {} preemptions ({} by swapping), {} blocks restored from the tier below, peak {} blocks.</p>\n",
      r.num_requests, r.num_prompt_tokens, r.num_output_tokens, r.duration_s, each.options.num_replicas,
      r.num_blocks / each.options.num_replicas, each.options.block_size, r.num_steps, r.num_preemptions, r.num_swaps,
      r.num_restored_blocks, r.peak_blocks);
  out += plot("Blocks, share of the pool:", "s",
              {over_time("used", "#c33", r, &TimelinePoint::blocks_used),
               over_time("cached", "#39c", r, &TimelinePoint::blocks_cached)});
  out += plot("Sequences:", "s",
              {over_time("running", "#393", r, &TimelinePoint::num_running),
               over_time("waiting", "#c83", r, &TimelinePoint::num_waiting)});
  out += plot("Time to first token, s, by percentile:", "%", {percentiles("ttft", "#639", r.ttft_s)});
  out += plot("Inter-token latency, s, by percentile:", "%", {percentiles("itl", "#366", r.itl_s)});
  return out;
}

// Plots of a sweep: each measure in a plot with a line for each case.
std::string comparison(const std::vector<SimCase>& cases) {
  static constexpr std::array kColors = {"#c33", "#39c", "#393", "#c83", "#639", "#366", "#a06", "#777"};
  const auto overlay = [&](const std::string& title, const char* x_name, const auto& series_of) {
    std::vector<Series> series;
    for (std::size_t i = 0; i < cases.size(); ++i)
      series.push_back(series_of(cases[i].name.c_str(), kColors[i % kColors.size()], cases[i].report));
    return plot(title, x_name, series);
  };
  const auto timed = [](double TimelinePoint::*field) {
    return [field](const char* name, const char* color, const SimReport& report) {
      return over_time(name, color, report, field);
    };
  };
  const auto ranked = [](Distribution SimReport::*field) {
    return [field](const char* name, const char* color, const SimReport& report) {
      return percentiles(name, color, report.*field);
    };
  };
  return "<h2>All cases</h2>\n" + overlay("Time to first token, s, by percentile:", "%", ranked(&SimReport::ttft_s)) +
         overlay("Inter-token latency, s, by percentile:", "%", ranked(&SimReport::itl_s)) +
         overlay("Sequences waiting:", "s", timed(&TimelinePoint::num_waiting)) +
         overlay("Sequences running:", "s", timed(&TimelinePoint::num_running)) +
         overlay("Blocks used, share of the pool:", "s", timed(&TimelinePoint::blocks_used));
}

std::string summary_row(const SimCase& each) {
  const SimReport& r = each.report;
  std::string out = fmt::format("<tr><td>{}</td>", escaped(each.name));
  const auto cell = [&](const std::string& text) { out += "<td>" + text + "</td>"; };
  cell(fmt::format("{}", r.num_requests));
  cell(fmt::format("{:.1f}", r.output_tokens_per_s()));
  cell(fmt::format("{:.2f}%", 100.0 * r.hit_rate()));
  cell(fmt::format("{:.2f}%", 100.0 * r.block_hit_rate()));
  for (const double percent : {50.0, 90.0, 99.0})
    cell(fmt::format("{:.2f}", r.ttft_s.percentile(percent)));
  for (const double percent : {50.0, 90.0, 99.0})
    cell(fmt::format("{:.1f}", 1000.0 * r.itl_s.percentile(percent)));
  cell(fmt::format("{:.1f}", r.e2e_s.percentile(50)));
  cell(fmt::format("{}", r.num_preemptions));
  cell(fmt::format("{:.4f}", r.fairness()));
  cell(fmt::format("{:.0f}%", 100.0 * r.busy_s / (r.duration_s * each.options.num_replicas + 1e-9)));
  return out + "</tr>\n";
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}td,th{padding:.2em "
    ".4em;border-bottom:1px solid "
    "#ddd;"
    "text-align:right}td:first-child,th:first-child{text-align:left}figure{margin:1em 0}svg{width:100%}"
    ".wide{overflow-x:auto}td,th{white-space:nowrap}text{font-size:11px;fill:#666}.axis{fill:none;stroke:#999}";

}  // namespace

std::string to_html(const std::vector<SimCase>& cases, const std::string& title) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta "
      "charset=\"utf-8\"><title>{0}</title><style>{1}</style></head><body>\n"
      "<h1>{0}</h1>\n<div class=\"wide\"><table><tr><th>case</th><th>requests</th><th>output tok/s</th><th>token "
      "hits</th><th>block "
      "hits</th>"
      "<th>TTFT p50 s</th><th>p90</th><th>p99</th><th>ITL p50 ms</th><th>p90</th><th>p99</th><th>e2e p50 s</th>"
      "<th>preemptions</th><th>fairness</th><th>busy</th></tr>\n",
      escaped(title), kStyle);
  for (const SimCase& each : cases)
    out += summary_row(each);
  out += "</table></div>\n";
  if (cases.size() > 1) out += comparison(cases);
  for (const SimCase& each : cases)
    out += case_section(each);
  return out + "</body></html>\n";
}

}  // namespace quire::sim
