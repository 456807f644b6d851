// The settings of files and batches. Plain; immutable once given to a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

struct BatchOptions {
  std::string directory;                                   // empty: neither files nor batches are served
  std::int64_t max_bytes = std::int64_t{16} << 30;         // of all that is stored
  std::int64_t max_bytes_per_key = std::int64_t{4} << 30;  // of what one API key stored
  std::int64_t max_file_bytes = std::int64_t{200} << 20;   // of one upload
  std::int64_t max_files_per_key = 1000;
  std::int64_t max_batches_per_key = 100;                       // the oldest ended one is forgotten for a new one
  std::int64_t max_lines = 50'000;                              // requests of one batch
  std::int64_t max_line_bytes = std::int64_t{16} << 20;         // of one request
  std::int64_t max_running = 32;                                // requests of all batches that wait or run at once
  std::chrono::milliseconds keep{std::chrono::hours{30 * 24}};  // files, and batches after their end
};

}  // namespace quire
