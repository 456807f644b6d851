// Metrics as text: escapes, numbers, histograms, and a registry's families.
#include "server/metrics/exposition.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "server/metrics/registry.h"

using namespace quire::metrics;

TEST_CASE("A family is its help, its type and a line for each series", "[metrics]") {
  MetricFamily family{"a:b_total", "Two\nlines \\ \"quoted\"", MetricType::kCounter, {}};
  family.metric.push_back({{}, 3.0, {}});
  family.metric.push_back({{{"key", "a\"b\\c\nd"}, {"code", "200"}}, 0.1, {}});
  CHECK(exposition_text({family}) ==
        "# HELP a:b_total Two\\nlines \\\\ \"quoted\"\n# TYPE a:b_total counter\na:b_total 3\n"
        "a:b_total{key=\"a\\\"b\\\\c\\nd\",code=\"200\"} 0.1\n");
}

TEST_CASE("Numbers have the digits that tell them apart, and no locale", "[metrics]") {
  const double infinity = std::numeric_limits<double>::infinity();
  MetricFamily family{"g", "h", MetricType::kGauge, {}};
  for (const double value : {1e15, 1e17, 1234567.25, 1.0 / 3, -0.5, infinity, -infinity, std::nan("")})
    family.metric.push_back({{}, value, {}});
  CHECK(exposition_text({family}) ==
        "# HELP g h\n# TYPE g gauge\ng 1000000000000000\ng 1e+17\ng 1234567.25\ng 0.3333333333333333\ng -0.5\ng +Inf\n"
        "g -Inf\ng Nan\n");
}

TEST_CASE("A histogram counts a value in the first bucket that holds it and in all above", "[metrics]") {
  Registry registry;
  Histogram& histogram = registry.family("h", "help", MetricType::kHistogram).histogram({{"m", "x"}}, {1.0, 2.5});
  histogram.observe(1.0);
  histogram.observe(2.0);
  histogram.observe_all({0.0, 1.0, 2.0}, 9.0);
  CHECK(exposition_text(registry.collect()) ==
        "# HELP h help\n# TYPE h histogram\nh_count{m=\"x\"} 5\nh_sum{m=\"x\"} 12\nh_bucket{m=\"x\",le=\"1\"} 1\n"
        "h_bucket{m=\"x\",le=\"2.5\"} 3\nh_bucket{m=\"x\",le=\"+Inf\"} 5\n");
}

TEST_CASE("A registry keeps the order of its families and one series for each set of labels", "[metrics]") {
  Registry registry;
  Family& last = registry.family("z", "", MetricType::kCounter);
  registry.family("empty", "", MetricType::kCounter);
  registry.family("a", "", MetricType::kGauge).gauge({}).increment();
  last.counter({{"b", "1"}, {"a", "2"}}).increment();
  last.counter({{"a", "2"}, {"b", "1"}}).increment(2.5);
  CHECK(&registry.family("z", "other words", MetricType::kCounter) == &last);
  CHECK(exposition_text(registry.collect()) ==
        "# HELP z \n# TYPE z counter\nz{a=\"2\",b=\"1\"} 3.5\n# HELP a \n# TYPE a gauge\na 1\n");
}
