// The rows of the table of configuration keys for files and batches. Immutable; any thread.
#pragma once

#include <vector>

#include "config/keys.h"

namespace quire {

std::vector<ConfigKey> batch_keys();

}  // namespace quire
