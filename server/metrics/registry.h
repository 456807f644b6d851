// Counters, gauges and histograms that live as long as their registry, grouped into families by name. Any thread: a
// value is an atomic or has a lock of its own, and a lookup locks its family. A series is made by the first call that
// names its labels.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "server/metrics/exposition.h"

namespace quire::metrics {

// Values by name, sorted.
using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  void increment(double by = 1.0) { value_.fetch_add(by, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

class Gauge {
 public:
  void increment() { value_.fetch_add(1.0, std::memory_order_relaxed); }
  void decrement() { value_.fetch_sub(1.0, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

class Histogram {
 public:
  // Upper bounds in ascending order; values above the last one have a bucket of their own.
  using Bounds = std::vector<double>;

  explicit Histogram(Bounds bounds);

  void observe(double value);
  // Adds `counts[i]` values to bucket i, which sum up to `sum`.
  void observe_all(const std::vector<double>& counts, double sum);
  HistogramValue value() const;

 private:
  const Bounds bounds_;
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0.0;
};

// The series of one name, distinguished by their labels. Each family has one kind of value; requesting another kind is
// a broken invariant.
class Family {
 public:
  Family(std::string name, std::string help, MetricType type)
      : name_(std::move(name)), help_(std::move(help)), type_(type) {}

  Counter& counter(const Labels& labels);
  Gauge& gauge(const Labels& labels);
  Histogram& histogram(const Labels& labels, const Histogram::Bounds& bounds);

  const std::string& name() const { return name_; }
  MetricFamily collect() const;

 private:
  const std::string name_;
  const std::string help_;
  const MetricType type_;
  mutable std::mutex mutex_;
  std::map<Labels, std::variant<Counter, Gauge, Histogram>> series_;
};

class Registry {
 public:
  // The family of that name, made with the first call.
  Family& family(const std::string& name, const std::string& help, MetricType type);

  // Every family that has a series, in the order in which they were made.
  std::vector<MetricFamily> collect() const;

 private:
  mutable std::mutex mutex_;
  std::deque<Family> families_;
};

}  // namespace quire::metrics
