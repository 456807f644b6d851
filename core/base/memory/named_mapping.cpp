#include "core/base/memory/named_mapping.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <iterator>

namespace quire {

namespace {

// Read by a signal handler: fixed memory, no locks.
struct Entry {
  enum State : int { kFree, kChanging, kUsed };
  std::atomic<int> state{kFree};
  const std::byte* begin = nullptr;
  std::size_t size = 0;
  char path[1024] = {};
};
Entry entries[1024];
std::atomic<int> exit_code_when_truncated{0};

const Entry* entry_of(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const Entry& entry : entries) {
    if (entry.state.load() == Entry::kUsed && at >= entry.begin && at < entry.begin + entry.size) return &entry;
  }
  return nullptr;
}

// Async-signal-safe functions only.
void on_bus_error(int, siginfo_t* info, void*) {
  const Entry* const entry = entry_of(info->si_addr);
  if (entry == nullptr) {
    ::signal(SIGBUS, SIG_DFL);  // the instruction is repeated and ends the process
    return;
  }
  write_last_words("quire: ");
  write_last_words(entry->path);
  write_last_words(
      ": the file was cut short while it was in use, or its disk failed: restore it and start again. Rename a new "
      "version over the old one, never write into it\n");
  ::_exit(exit_code_when_truncated.load());
}

}  // namespace

NamedMapping::NamedMapping(std::span<const std::byte> bytes, const std::string& path) {
  for (Entry& entry : entries) {
    int expected = Entry::kFree;
    if (!entry.state.compare_exchange_strong(expected, Entry::kChanging)) continue;
    entry.begin = bytes.data();
    entry.size = bytes.size();
    entry.path[path.copy(entry.path, sizeof entry.path - 1)] = '\0';
    entry.state.store(Entry::kUsed);
    entry_ = static_cast<int>(&entry - std::begin(entries));
    return;
  }
}

NamedMapping::~NamedMapping() {
  if (entry_ >= 0) entries[entry_].state.store(Entry::kFree);
}

void end_when_truncated(int exit_code) {
  exit_code_when_truncated.store(exit_code);
  struct sigaction action {};
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

void write_last_words(const char* text) {
  constexpr int kPatienceMs = 500;
  pollfd reader{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&reader, 1, kPatienceMs) == 1) static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text)));
}

}  // namespace quire
