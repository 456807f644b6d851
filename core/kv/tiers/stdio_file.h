// StdioFile and HashState: a C file that closes itself and is read and written whole, and a running XXH3 hash, for the
// records that are kept on disk. One thread at a time.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdio>
#include <memory>

namespace quire {

struct StdioCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using StdioFile = std::unique_ptr<std::FILE, StdioCloser>;

struct HashStateFreer {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, HashStateFreer>;

// False where fewer bytes were written or read.
inline bool write_all(std::FILE* file, const void* data, std::size_t size) {
  return size == 0 || std::fwrite(data, 1, size, file) == size;
}

inline bool read_all(std::FILE* file, void* data, std::size_t size) {
  return size == 0 || std::fread(data, 1, size, file) == size;
}

}  // namespace quire
