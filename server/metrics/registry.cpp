#include "server/metrics/registry.h"

#include <algorithm>
#include <limits>

#include "kernels/check.h"

namespace quire::metrics {

Histogram::Histogram(Bounds bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += value;
}

void Histogram::observe_all(const std::vector<double>& counts, double sum) {
  QUIRE_CHECK(counts.size() == counts_.size(), "a histogram was given other buckets than it has");
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts_[i] += static_cast<std::uint64_t>(counts[i]);
  sum_ += sum;
}

HistogramValue Histogram::value() const {
  const std::lock_guard lock(mutex_);
  HistogramValue value;
  value.sample_sum = sum_;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    value.sample_count += counts_[i];
    const double bound = i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
    value.bucket.push_back({value.sample_count, bound});
  }
  return value;
}

namespace {

// The value of that kind, made from `arguments` if the labels are new.
template <class Value, class Series, class... Arguments>
Value& value_of(Series& series, const Labels& labels, const Arguments&... arguments) {
  const auto known = series.find(labels);
  const auto at =
      known != series.end() ? known : series.try_emplace(labels, std::in_place_type<Value>, arguments...).first;
  Value* const value = std::get_if<Value>(&at->second);
  QUIRE_CHECK(value != nullptr, "a metric was asked for as another kind than it has");
  return *value;
}

}  // namespace

Counter& Family::counter(const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return value_of<Counter>(series_, labels);
}

Gauge& Family::gauge(const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return value_of<Gauge>(series_, labels);
}

Histogram& Family::histogram(const Labels& labels, const Histogram::Bounds& bounds) {
  const std::lock_guard lock(mutex_);
  return value_of<Histogram>(series_, labels, bounds);
}

MetricFamily Family::collect() const {
  const std::lock_guard lock(mutex_);
  MetricFamily family{name_, help_, type_, {}};
  for (const auto& [labels, value] : series_) {
    ClientMetric metric;
    for (const auto& [name, text] : labels)
      metric.label.push_back({name, text});
    if (const auto* counter = std::get_if<Counter>(&value)) metric.value = counter->value();
    if (const auto* gauge = std::get_if<Gauge>(&value)) metric.value = gauge->value();
    if (const auto* histogram = std::get_if<Histogram>(&value)) metric.histogram = histogram->value();
    family.metric.push_back(std::move(metric));
  }
  return family;
}

Family& Registry::family(const std::string& name, const std::string& help, MetricType type) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::find_if(families_.begin(), families_.end(), [&](const Family& family) { return family.name() == name; });
  return known != families_.end() ? *known : families_.emplace_back(name, help, type);
}

std::vector<MetricFamily> Registry::collect() const {
  const std::lock_guard lock(mutex_);
  std::vector<MetricFamily> families;
  for (const Family& family : families_) {
    MetricFamily collected = family.collect();
    if (!collected.metric.empty()) families.push_back(std::move(collected));
  }
  return families;
}

}  // namespace quire::metrics
