// Figures of a device: what its memory moves, and what the kernels take at several numbers of rows. One thread.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/gpu/device.h"

namespace quire::test {

// Prints a table of what has `part` in its name. Takes the device.
void measure(std::unique_ptr<gpu::Device> device, std::string_view part);

}  // namespace quire::test
