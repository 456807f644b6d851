#include "server/metrics/exposition.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace quire::metrics {

namespace {

// Digits of a value: a number written with fewer digits reads the same.
constexpr int kPrecision = 16;

void append_number(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "Nan";
  } else if (std::isinf(value)) {
    text += value < 0 ? "-Inf" : "+Inf";
  } else {
    std::array<char, 32> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, kPrecision);
    text.append(digits.data(), end.ptr);
  }
}

void append_escaped(std::string& text, std::string_view value, bool with_quotes) {
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\\' || (c == '"' && with_quotes)) {
      text += '\\';
      text += c;
    } else {
      text += c;
    }
  }
}

// A line's beginning, up to the value. `bound`, if any, is the label `le`.
void append_head(std::string& text, const std::string& name, std::string_view suffix, const ClientMetric& metric,
                 const double* bound = nullptr) {
  text += name;
  text += suffix;
  char separator = '{';
  for (const Label& label : metric.label) {
    text += separator;
    separator = ',';
    text += label.name;
    text += "=\"";
    append_escaped(text, label.value, true);
    text += '"';
  }
  if (bound != nullptr) {
    text += separator;
    separator = ',';
    text += "le=\"";
    append_number(text, *bound);
    text += '"';
  }
  text += separator == '{' ? " " : "} ";
}

void append_count(std::string& text, std::uint64_t count) {
  text += std::to_string(count);
  text += '\n';
}

void append_histogram(std::string& text, const std::string& name, const ClientMetric& metric) {
  append_head(text, name, "_count", metric);
  append_count(text, metric.histogram.sample_count);
  append_head(text, name, "_sum", metric);
  append_number(text, metric.histogram.sample_sum);
  text += '\n';
  for (const Bucket& bucket : metric.histogram.bucket) {
    append_head(text, name, "_bucket", metric, &bucket.upper_bound);
    append_count(text, bucket.cumulative_count);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!metric.histogram.bucket.empty() && std::isinf(metric.histogram.bucket.back().upper_bound)) return;
  append_head(text, name, "_bucket", metric, &kInfinity);
  append_count(text, metric.histogram.sample_count);
}

constexpr const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter: return "counter";
    case MetricType::kGauge: return "gauge";
    case MetricType::kHistogram: return "histogram";
  }
  return "untyped";
}

}  // namespace

std::string exposition_text(const std::vector<MetricFamily>& families) {
  std::string text;
  for (const MetricFamily& family : families) {
    text += "# HELP " + family.name + " ";
    append_escaped(text, family.help, false);
    text += "\n# TYPE " + family.name + " " + type_name(family.type) + "\n";
    for (const ClientMetric& metric : family.metric) {
      if (family.type == MetricType::kHistogram) {
        append_histogram(text, family.name, metric);
        continue;
      }
      append_head(text, family.name, "", metric);
      append_number(text, metric.value);
      text += '\n';
    }
  }
  return text;
}

}  // namespace quire::metrics
