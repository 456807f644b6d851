// Memory for what must not fail, such as the end of a JSON value: the C library's, or where that has none, a part of
// pages that were kept for it. Where these are full too, a caller waits until another one's part returns. Any thread.
#pragma once

#include <cstddef>

namespace quire {

inline constexpr std::size_t kSureBytes = std::size_t{32} << 20;

// Keeps kSureBytes of address space until the process ends. Before this call allocate_surely() can only wait.
void keep_sure_memory();

// Never null.
void* allocate_surely(std::size_t bytes) noexcept;
void release_surely(void* memory) noexcept;

}  // namespace quire
