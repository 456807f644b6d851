// JSON values that end, and that begin to be containers, where the system has no memory left: in a child process with a
// limit of its address space.
#include "core/base/memory/sure_memory.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <new>
#include <thread>
#include <vector>

#include "core/base/json/json.h"

using namespace quire;

namespace {

constexpr std::size_t kNumElements = 200'000;

struct Taken {
  Taken* next;
};

// No address space beyond what the process has now.
bool forbid_growth() {
  long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) return false;
  std::fclose(file);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(pages) * 4096;
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
}

// Blocks of every size until none is left of the smallest.
Taken* take_everything() {
  Taken* taken = nullptr;
  for (std::size_t bytes = std::size_t{1} << 20; bytes >= sizeof(Taken); bytes /= 2)
    while (void* const block = std::malloc(bytes))
      taken = new (block) Taken{taken};
  return taken;
}

void give_back(Taken* taken) {
  while (taken != nullptr) {
    Taken* const next = taken->next;
    std::free(taken);
    taken = next;
  }
}

bool is_refused() {
  try {
    delete new std::vector<char>(100);
    return false;
  } catch (const std::bad_alloc&) {
    return true;
  }
}

// Members of members, until memory is refused inside one.
template <typename Value>
bool refuses_to_begin(std::vector<Value>& begun) {
  try {
    for (int i = 0; i < 10'000; ++i) {
      begun.emplace_back();
      begun.back()["a"]["a member's name that no short string holds"] = i;
    }
    return false;
  } catch (const std::bad_alloc&) {
    return true;
  }
}

// 0 where all values ended as they should.
template <typename Value>
int end_values() {
  keep_sure_memory();
  auto numbers = Value::array();
  for (std::size_t i = 0; i < kNumElements; ++i)
    numbers.push_back(i);
  Value members;
  members["first"]["second"] = numbers;
  std::vector<Value> deep(1, Value{});
  for (int depth = 0; depth < 100; ++depth)
    deep[0] = Value::array({deep[0], depth});
  if (!forbid_growth()) return 11;
  Taken* const taken = take_everything();
  if (!is_refused()) return 12;
  std::vector<Value> begun;
  const bool is_refused_midway = refuses_to_begin(begun);
  numbers = nullptr;  // its end frees memory for what follows
  members = nullptr;
  deep.clear();
  begun.clear();
  give_back(taken);
  return is_refused_midway ? 0 : 13;
}

// True where every part that this thread took from the kept pages stayed its own.
bool take_and_return(std::uint64_t mark) {
  bool is_apart = true;
  std::array<std::uint64_t*, 16> parts{};
  for (std::size_t round = 0; round < 20'000; ++round) {
    std::uint64_t*& part = parts[round % parts.size()];
    if (part != nullptr) {
      is_apart = is_apart && *part == mark;
      release_surely(part);
    }
    part = static_cast<std::uint64_t*>(allocate_surely(16 + round % 64));
    *part = mark;
  }
  for (std::uint64_t* const part : parts)
    release_surely(part);
  return is_apart;
}

// 0 where eight threads at once took and returned parts that stayed apart.
int share_kept_pages() {
  keep_sure_memory();
  std::latch is_full(1);
  std::atomic<int> num_apart{0};
  std::vector<std::thread> threads;
  for (std::uint64_t mark = 1; mark <= 8; ++mark)
    threads.emplace_back([&, mark] {
      is_full.wait();
      num_apart += take_and_return(mark);
    });
  if (!forbid_growth()) return 11;
  Taken* const taken = take_everything();
  is_full.count_down();
  for (std::thread& thread : threads)
    thread.join();
  give_back(taken);
  return num_apart == 8 ? 0 : 14;
}

int status_of_child(int (*run)()) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(run());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("JSON values end and begin where the system has no memory") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // these take address space of their own
#endif
  CHECK(status_of_child(end_values<Json>) == 0);
  CHECK(status_of_child(end_values<SortedJson>) == 0);
}

TEST_CASE("threads that take sure memory at once get parts of their own") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // these take address space of their own
#endif
  CHECK(status_of_child(share_kept_pages) == 0);
}

TEST_CASE("sure memory is writable, apart and comes back") {
  keep_sure_memory();
  std::vector<char*> parts;
  for (int i = 0; i < 100; ++i) {
    parts.push_back(static_cast<char*>(allocate_surely(1000)));
    for (int at = 0; at < 1000; ++at)
      parts.back()[at] = static_cast<char>(i);
  }
  for (int i = 0; i < 100; ++i) {
    for (int at = 0; at < 1000; ++at)
      REQUIRE(parts[i][at] == static_cast<char>(i));
    release_surely(parts[i]);
  }
}
