// Where packed weights are kept between starts. Value type; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

struct PackedCacheOptions {
  std::filesystem::path folder;  // empty: no cache
  std::string model_version;     // names, sizes and times of the model's files
};

}  // namespace quire
