// FakeModels: models without weights for LiveModels: each is a FakeEngine behind the numbers that a plan asks for, and
// counts what becomes of it. Any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "server/models/live_models.h"
#include "tests/server/fake_engine.h"
#include "tests/server/fake_tokenizer.h"

namespace quire::test {

inline constexpr std::uint64_t kMegabyte = std::uint64_t{1} << 20;

class FakeModels {
 public:
  // Opens any path: its engine repeats the path's name up to max_tokens. "missing" fails when it is opened, "broken"
  // when it is loaded.
  ModelOpener opener();
  // The next loads wait until release().
  void hold_loads();
  void release_loads();
  void wait_loading(int count);    // waits until `count` loads have begun
  void wait_destroyed(int count);  // waits until `count` models are destroyed
  int num_loads() const;
  int num_alive() const;
  // The engine that was started last from this path. Must be alive.
  FakeEngine& engine(const std::string& path);

  // Makes the path unreadable from now on. Any other path is an adapter of kAdapterBytes, whose answers contain its
  // file's name.
  void remove_adapter(const std::string& path);
  static constexpr std::uint64_t kAdapterBytes = 10 * kMegabyte;

  std::uint64_t weight_bytes = 100 * kMegabyte;
  std::uint64_t host_bytes = 0;  // host memory of a model on a GPU

 private:
  class Running;
  class Opened;
  void enter(const std::string& path, FakeEngine* engine);
  void leave(FakeEngine* engine);
  std::shared_ptr<const Adapter> read_adapter(const std::filesystem::path& path);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, FakeEngine*> engines_;
  std::set<std::string> absent_;
  int num_loads_ = 0;
  int num_begun_ = 0;
  int num_destroyed_ = 0;
  bool held_ = false;
};

// A machine with `bytes` of memory; fake models take none of it.
inline std::function<MachineMemory()> machine_of(std::uint64_t bytes) {
  return [bytes] { return MachineMemory{bytes, "the machine"}; };
}

inline HostedModelSpec fake_spec(const std::string& name, const std::string& path, bool preload = true) {
  ModelEntry entry;
  entry.name = name;
  entry.model.path = path;
  entry.kv_memory = static_cast<std::int64_t>(16 * kMegabyte);
  entry.preload = preload;
  return spec_of(entry, {});
}

}  // namespace quire::test
