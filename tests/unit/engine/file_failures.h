// Makes steps on regular files fail, as a full or broken disk does: the calls of the C library are replaced in this
// program. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

// kWrite: half of the bytes are written, or of what is buffered none. kSync: fsync, fdatasync. kRename: rename.
enum class FileStep { kWrite, kSync, kRename };

// The next such step fails, once; or the one after `num_before` others.
void fail_next_file_step(FileStep step, std::int64_t num_before = 0);
// Takes that back; false where it has failed already.
bool forget_file_failure();

}  // namespace quire::test
