// Memory of JSON values. The library's destructor, which may not throw, needs a list for the elements, and the
// container that a value is marked to have: both come from allocate_surely(). Other memory may be refused with
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/base/json/json_fwd.h"
#include "core/base/memory/sure_memory.h"

namespace quire {

template <typename T>
concept JsonContainer = requires {
  typename T::allocator_type;
}
&&!requires {
  typename T::object_t;
};

template <typename T>
struct JsonAllocator {
  using value_type = T;

  JsonAllocator() = default;
  template <typename U>
  // NOLINTNEXTLINE(google-explicit-constructor): the standard asks for this conversion
  JsonAllocator(const JsonAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    if constexpr (JsonContainer<T>)
      return static_cast<T*>(allocate_surely(count * sizeof(T)));
    else
      return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if constexpr (JsonContainer<T>)
      release_surely(memory);
    else
      std::allocator<T>().deallocate(memory, count);
  }

  template <typename U>
  bool operator==(const JsonAllocator<U>&) const noexcept {
    return true;
  }
};

}  // namespace quire

// Allocator of the destructor's list; vectors of values elsewhere use it too.
template <template <typename U, typename V, typename... Args> class Object>
struct std::allocator<quire::JsonOf<Object>> {
  using value_type = quire::JsonOf<Object>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_move_assignment = std::true_type;

  constexpr allocator() noexcept = default;
  template <typename U>
  // NOLINTNEXTLINE(google-explicit-constructor): the standard asks for this conversion
  constexpr allocator(const allocator<U>&) noexcept {}

  value_type* allocate(std::size_t count) {
    if (count > std::size_t(-1) / sizeof(value_type)) throw std::bad_array_new_length();
    return static_cast<value_type*>(quire::allocate_surely(count * sizeof(value_type)));
  }
  void deallocate(value_type* memory, std::size_t) noexcept { quire::release_surely(memory); }

  friend constexpr bool operator==(const allocator&, const allocator&) noexcept { return true; }
};
