// Operations of the GPU backend on random data of fixed seeds, whose results two devices must agree on: to the bit
// where sums are spelt out, else (mma of 16-bit floats) within a tolerance. Immutable after construction; each case
// runs on a backend of its own thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire::test {

struct DeviceCase {
  std::string name;
  std::function<std::vector<float>(Backend&)> run;
  double tolerance = 0.0;  // relative to the largest value
};

std::vector<DeviceCase> device_cases();
void add_draw_cases(std::vector<DeviceCase>& out);  // called by device_cases()

// Adds the cases of routing, recurrent mixers and residual streams; called by device_cases().
void add_mixer_cases(std::vector<DeviceCase>& out);

}  // namespace quire::test
