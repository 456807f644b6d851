
#include "core/base/json/json.h"
#include "server/cli/bench/kernel_bench.h"

namespace quire::bench {

Json to_json(const KernelReport& report) {
  Json limits = Json::array();
  for (const MachineLimits& level : report.limits) {
    Json reads = Json::array();
    for (const ReadLimit& read : level.reads)
      reads.push_back({{"bytes", read.bytes}, {"gigabytes_per_second", read.gigabytes_per_second}});
    Json rates = Json::object();
    for (const RateLimit& rate : level.rates)
      rates[rate.name] = rate.giga_operations_per_second;
    limits.push_back(
        {{"level", level.level}, {"threads", level.threads}, {"reads", reads}, {"giga_operations_per_second", rates}});
  }
  Json rows = Json::array();
  for (const KernelRow& row : report.rows) {
    rows.push_back({{"level", row.level},
                    {"operation", row.operation},
                    {"type", row.type},
                    {"shape", row.shape},
                    {"rows", row.rows},
                    {"microseconds", row.microseconds},
                    {"gigabytes_per_second", row.gigabytes_per_second},
                    {"giga_operations_per_second", row.giga_operations_per_second},
                    {"bound_by", row.memory_bound ? "reading" : "arithmetic"},
                    {"percent_of_limit", row.percent_of_limit}});
  }
  return {{"limits", limits}, {"operations", rows}};
}

}  // namespace quire::bench
