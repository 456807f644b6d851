// Figures of a device: what its memory moves, and what the kernels take at several numbers of rows. One thread.
#pragma once

#include <memory>

#include "kernels/gpu/device.h"

namespace quire::test {

// Prints a table. Takes the device.
void measure(std::unique_ptr<gpu::Device> device);

}  // namespace quire::test
