// A snapshot of metrics and its text form, which Prometheus scrapes (text exposition format 0.0.4). Plain data; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::metrics {

enum class MetricType { kCounter, kGauge, kHistogram };

struct Label {
  std::string name;
  std::string value;
};

struct Bucket {
  std::uint64_t cumulative_count = 0;
  double upper_bound = 0.0;  // infinity in the last bucket
};

struct HistogramValue {
  std::uint64_t sample_count = 0;
  double sample_sum = 0.0;
  std::vector<Bucket> bucket;
};

// A series of a family.
struct ClientMetric {
  using Label = metrics::Label;

  std::vector<metrics::Label> label;
  double value = 0.0;  // value of a counter or a gauge
  HistogramValue histogram;
};

struct MetricFamily {
  std::string name;
  std::string help;
  MetricType type = MetricType::kGauge;
  std::vector<ClientMetric> metric;
};

// Writes each family: its help and type, then a line for each value.
std::string exposition_text(const std::vector<MetricFamily>& families);

}  // namespace quire::metrics
