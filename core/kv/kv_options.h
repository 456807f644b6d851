// The settings of the KV cache. Plain; immutable once given to a KvCache or a memory plan.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace quire {

struct KvCacheOptions {
  std::int32_t block_size = 16;  // tokens; a multiple of 16
  std::int64_t num_blocks = 0;   // 0: as many as `memory` holds
  std::int64_t memory = 0;       // bytes; 0: decided by the memory plan
  KvDType dtype = KvDType::kF16;
  bool enable_prefix_caching = true;
  double retained_share = 0.25;  // pool share protected for prompts that clients asked to keep
  bool isolate_by_key = false;   // prefix blocks are shared only among the requests of one API key

  std::int64_t host_tier_bytes = 0;  // evicted blocks are kept in host memory up to this; 0: off
  std::string disk_tier_path;        // a directory for blocks that outlive the process; empty: off
  std::int64_t disk_tier_bytes = std::int64_t{8} << 30;
};

}  // namespace quire
