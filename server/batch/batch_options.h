// The settings of files and batches. Plain; immutable once given to a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

struct BatchOptions {
  std::string directory;                                   // empty: files and batches are not served
  std::int64_t max_bytes = std::int64_t{16} << 30;         // all stored files together
  std::int64_t max_bytes_per_key = std::int64_t{4} << 30;  // files stored by one API key
  std::int64_t max_file_bytes = std::int64_t{200} << 20;   // size of one upload
  std::int64_t max_files_per_key = 1000;
  std::int64_t max_batches_per_key = 100;                       // a new batch replaces the oldest ended one
  std::int64_t max_lines = 50'000;                              // requests in one batch
  std::int64_t max_line_bytes = std::int64_t{16} << 20;         // size of one request
  std::int64_t max_running = 32;                                // requests waiting or running, over all batches
  std::chrono::milliseconds keep{std::chrono::hours{30 * 24}};  // files, and batches after their end
};

}  // namespace quire
