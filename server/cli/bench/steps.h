// `quire bench steps`: the cost of one step of a model, by its batch: streams, prompt tokens, and the context of both.
// Thread rule: one at a time; the caller's thread becomes the engine thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/sim/step_fit.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

namespace quire::bench {

struct StepsOptions {
  std::filesystem::path model;
  BackendOptions backend;
  KvDType kv_dtype = KvDType::kF16;
  std::int64_t max_streams = 32;
  std::int64_t max_prompt = 512;    // most prompt tokens in a step
  std::int64_t max_context = 2048;  // limited to the model's context
  int repeats = 3;                  // measured steps per median, after one that touches memory
};

struct StepsReport {
  std::string model;
  std::string backend;
  std::vector<sim::MeasuredStep> steps;
};

// Throws StartupError for a bad model. `progress` is called with each measurement's name.
StepsReport run_steps(const StepsOptions& options, const std::function<void(const std::string&)>& progress);

}  // namespace quire::bench
