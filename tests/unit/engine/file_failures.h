// Makes steps on regular files fail, as a full or broken disk does: the calls of the C library are replaced in this
// program. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

// kWrite: half of the bytes are written, or none of the buffered ones. kSync: fsync, fdatasync. kRename: rename.
enum class FileStep { kWrite, kSync, kRename };

// The next such step fails, once; or the one after `num_before` others.
void fail_next_file_step(FileStep step, std::int64_t num_before = 0);
// Cancels the failure; returns false if it has happened already.
bool forget_file_failure();

}  // namespace quire::test
