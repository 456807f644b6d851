#include "core/engine/adapter_pool.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "core/base/log.h"

namespace quire {

namespace {

// Shortest time before a file that could not be read is read again for a request.
constexpr std::chrono::seconds kReadAgainAfter{10};
// Pause after a step for which there was no memory.
constexpr std::chrono::milliseconds kTryAgain{50};

double mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Estimates the adapter's size in memory; 0 if its file cannot be examined, which load reports.
std::uint64_t bytes_of_files(const std::filesystem::path& path) {
  std::error_code failed;
  const auto size_of = [&](const std::filesystem::path& file) -> std::uint64_t {
    const std::uintmax_t size = std::filesystem::file_size(file, failed);
    return failed ? 0 : size;
  };
  return size_of(std::filesystem::is_directory(path, failed) ? path / "adapter_model.safetensors" : path);
}

std::string detail_of(const std::exception_ptr& failure) {
  if (failure == nullptr) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return std::string(": ") + error.what();
  }
}

Error adapter_failure(const std::string& name, const std::string& why) {
  return Error{ErrorKind::kUnavailable, "The adapter '" + name + "' cannot be used: " + why, "adapter_failed", "model",
               kReadAgainAfter};
}

StartupError too_large(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t max_bytes) {
  return StartupError(fmt::format("{}: the adapter takes {:.1f} MiB, and model.adapter_memory is {:.1f} MiB",
                                  path.string(), mebibytes(bytes), mebibytes(max_bytes)));
}

AdapterShortage shortage(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t in_use) {
  return AdapterShortage(
      fmt::format("{}: there is no room for {:.1f} MiB in model.adapter_memory: the adapters that requests use "
                  "take {:.1f} MiB; try again once they have ended",
                  path.string(), mebibytes(bytes), mebibytes(in_use)));
}

}  // namespace

// Use of an adapter in memory by one request.
class AdapterPool::Lease {
 public:
  Lease(std::shared_ptr<AdapterPool> pool, ResidentPtr resident, bool is_hold)
      : pool_(std::move(pool)), resident_(std::move(resident)), is_hold_(is_hold) {}
  ~Lease() { pool_->release(resident_, is_hold_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  const std::shared_ptr<AdapterPool> pool_;
  const ResidentPtr resident_;
  const bool is_hold_;
};

// Next work of the pool's thread: a wait that has ended, or else a file to read.
struct AdapterPool::Step {
  AdapterWait::Done done;  // null: none has ended
  std::optional<Error> error;
  std::string read;  // the adapter's name; empty: nothing to read
};

AdapterWait::~AdapterWait() {
  {
    const std::lock_guard lock(pool_->mutex_);
    std::erase(pool_->waits_, this);
  }
  pool_->changed_.notify_all();
}

void AdapterWait::begin(Done done) {
  std::unique_lock lock(pool_->mutex_);
  if (pool_->stopped_) {
    lock.unlock();
    return done(Error{ErrorKind::kUnavailable, "The model is being unloaded", "model_loading", "model",
                      std::chrono::seconds(1)});
  }
  done_ = std::move(done);
  pool_->waits_.push_back(this);
  lock.unlock();
  pool_->changed_.notify_all();
}

AdapterPool::AdapterPool(std::uint64_t max_bytes, Load load)
    : max_bytes_(max_bytes), load_(std::move(load)), thread_([this] {
        pthread_setname_np(pthread_self(), "adapters");
        run();
      }) {}

std::int64_t AdapterPool::add(const std::string& name, const std::filesystem::path& path) {
  const std::uint64_t expected = bytes_of_files(path);
  {
    const std::lock_guard lock(mutex_);
    if (expected > max_bytes_) throw too_large(path, expected, max_bytes_);
    if (!make_room(expected)) throw shortage(path, expected, bytes_in_use());
    reserved_ += expected;
    ++num_loads_;
  }
  std::shared_ptr<const Adapter> adapter;
  const std::shared_ptr<void> read(nullptr, [this](void*) { changed_.notify_all(); });
  try {
    adapter = load_(path);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    reserved_ -= expected;
    throw;
  }
  const std::lock_guard lock(mutex_);
  reserved_ -= expected;
  if (adapter->bytes() > max_bytes_) throw too_large(path, adapter->bytes(), max_bytes_);
  if (!make_room(adapter->bytes())) throw shortage(path, adapter->bytes(), bytes_in_use());
  const std::int64_t rank = adapter->rank();
  Named& named = named_[name];
  forget(named);
  named = Named{.id = ++num_ids_, .path = path, .asked_at = ++num_asked_};
  put(named, std::move(adapter));
  return rank;
}

void AdapterPool::add_unread(const std::string& name, const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  Named& named = named_[name];
  forget(named);
  named = Named{.id = ++num_ids_, .path = path, .bytes = bytes_of_files(path), .asked_at = ++num_asked_};
}

void AdapterPool::remove(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = named_.find(name);
    if (found == named_.end()) return;
    forget(found->second);
    named_.erase(found);
  }
  changed_.notify_all();
}

std::optional<AdapterPool::Taken> AdapterPool::take(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = named_.find(name);
  if (found == named_.end()) return std::nullopt;
  Named& named = found->second;
  named.asked_at = ++num_asked_;
  const ResidentPtr& resident = named.resident;
  // A waiter that was called back gets its adapter, even if the next waiter already needs its memory.
  if (resident != nullptr && (!resident->is_leaving || resident->num_holds > 0))
    return Taken{lease(resident, false), nullptr};
  return Taken{nullptr, std::make_shared<AdapterWait>(shared_from_this(), name)};
}

void AdapterPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

AdapterPool::Stats AdapterPool::stats() const {
  const std::lock_guard lock(mutex_);
  Stats out{.max_bytes = max_bytes_, .used_bytes = used_bytes(), .num_loads = num_loads_, .num_dropped = num_dropped_};
  for (const auto& [name, named] : named_) {
    if (named.resident != nullptr) out.in_memory.push_back(name);
    if (named.resident != nullptr && named.resident->num_users > 0) out.running.push_back(name);
    const bool is_awaited = std::ranges::any_of(waits_, [&](const AdapterWait* wait) { return wait->name_ == name; });
    if (is_awaited) out.waiting.push_back(name);
  }
  return out;
}

std::shared_ptr<const Adapter> AdapterPool::lease(const ResidentPtr& resident, bool is_hold) {
  const auto lease = std::make_shared<const Lease>(shared_from_this(), resident, is_hold);
  ++resident->num_users;
  resident->num_holds += is_hold ? 1 : 0;
  return {lease, resident->adapter.get()};
}

std::uint64_t AdapterPool::used_bytes() const {
  std::uint64_t bytes = reserved_;
  for (const auto& [name, named] : named_)
    bytes += named.resident != nullptr ? named.resident->bytes : 0;
  for (const ResidentPtr& resident : unnamed_)
    bytes += resident->bytes;
  return bytes;
}

std::uint64_t AdapterPool::bytes_in_use() const {
  std::uint64_t bytes = used_bytes();
  for (const auto& [name, named] : named_)
    bytes -= named.resident != nullptr && named.resident->num_users == 0 ? named.resident->bytes : 0;
  return bytes;
}

// Adapters in memory, least recently requested first.
std::vector<AdapterPool::Named*> AdapterPool::oldest_first() {
  std::vector<Named*> all;
  for (auto& [name, named] : named_) {
    if (named.resident != nullptr) all.push_back(&named);
  }
  std::ranges::sort(all, {}, &Named::asked_at);
  return all;
}

// False if adapters in use leave too little memory; nothing is dropped then.
bool AdapterPool::make_room(std::uint64_t bytes) {
  if (bytes_in_use() + bytes > max_bytes_) return false;
  for (Named* named : oldest_first()) {
    if (used_bytes() + bytes <= max_bytes_) break;
    if (named->resident->num_users > 0) continue;
    forget(*named);
    ++num_dropped_;
  }
  return true;
}

std::optional<std::string> AdapterPool::name_of(const std::string& content_key) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(named_, [&](const auto& each) { return each.second.content_key == content_key; });
  return found == named_.end() ? std::nullopt : std::optional(found->first);
}

// Marks adapters in use that must leave at their end to free enough memory. Requests for marked adapters queue behind
// the request that waits for the memory.
void AdapterPool::mark_leaving(std::uint64_t bytes) {
  std::uint64_t stays = bytes_in_use();
  for (Named* named : oldest_first()) {
    if (stays + bytes <= max_bytes_) return;
    if (named->resident->num_users == 0) continue;
    named->resident->is_leaving = true;
    stays -= named->resident->bytes;
  }
}

void AdapterPool::put(Named& named, std::shared_ptr<const Adapter> adapter) {
  named.bytes = adapter->bytes();
  named.content_key = adapter->content_key();
  named.failed_at.reset();
  named.resident = std::make_shared<Resident>();
  named.resident->bytes = named.bytes;
  named.resident->adapter = std::move(adapter);
}

// Takes the adapter out of memory, or leaves it to its users. It is freed on this thread, because the last user's lease
// may still be in its destructor.
void AdapterPool::forget(Named& named) {
  const ResidentPtr resident = std::exchange(named.resident, nullptr);
  if (resident == nullptr) return;
  if (resident->num_users > 0) {
    unnamed_.push_back(resident);
  } else {
    resident->adapter.reset();
  }
}

void AdapterPool::release(const ResidentPtr& resident, bool is_hold) {
  {
    const std::lock_guard lock(mutex_);
    resident->num_holds -= is_hold ? 1 : 0;
    if (--resident->num_users > 0) return;
    const auto unnamed = std::ranges::find(unnamed_, resident);
    if (unnamed != unnamed_.end()) {
      resident->adapter.reset();
      unnamed_.erase(unnamed);
    }
  }
  changed_.notify_all();
}

AdapterWait::Done AdapterPool::take_out(AdapterWait& wait) {
  std::erase(waits_, &wait);
  return std::exchange(wait.done_, nullptr);
}

// Serves the waits in order of arrival. Only waits for adapters in memory may pass one that waits for memory.
AdapterPool::Step AdapterPool::next_step() {
  Step step;
  bool is_blocked = false;
  for (auto& [name, named] : named_) {
    if (named.resident != nullptr) named.resident->is_leaving = false;
  }
  for (AdapterWait* const wait : waits_) {
    const auto found = named_.find(wait->name_);
    if (found == named_.end()) return {take_out(*wait), {}, {}};  // its request is read again and refused
    Named& named = found->second;
    if (named.resident != nullptr) {
      if (named.resident->is_leaving) continue;
      wait->held_ = lease(named.resident, true);
      return {take_out(*wait), {}, {}};
    }
    if (named.failed_at && Clock::now() - *named.failed_at < kReadAgainAfter) {
      step.error = named.failure;
      step.done = take_out(*wait);
      return step;
    }
    if (is_blocked || !step.read.empty()) continue;
    if (make_room(named.bytes)) {
      step.read = wait->name_;
    } else {
      is_blocked = true;
      mark_leaving(named.bytes);
    }
  }
  return step;
}

// The names may change while the file is read.
void AdapterPool::read_again(const std::string& name, Lock& lock) {
  const Named before = named_.at(name);
  reserved_ += before.bytes;
  ++num_loads_;
  lock.unlock();
  std::shared_ptr<const Adapter> adapter;
  std::exception_ptr failure;
  try {
    adapter = load_(before.path);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  lock.lock();
  reserved_ -= before.bytes;
  const auto found = named_.find(name);
  if (found == named_.end() || found->second.id != before.id || found->second.resident != nullptr) return;
  const char* why = nullptr;
  if (failure != nullptr) {
    why = "its file cannot be read any more";
  } else if (!before.content_key.empty() && adapter->content_key() != before.content_key) {
    why = "its file was changed since it was loaded; load it again in place";
  } else if (!make_room(adapter->bytes())) {
    why = "it takes more memory than model.adapter_memory leaves";
  }
  if (why == nullptr) return put(found->second, std::move(adapter));
  found->second.failure = adapter_failure(name, why);
  found->second.failed_at = Clock::now();
  log::error("adapter {}: {}{}", name, why, detail_of(failure));
}

// Does one step, or without memory for it nothing. The lock is held before and after.
void AdapterPool::advance(Lock& lock) {
  Step step = next_step();
  if (step.done != nullptr) {
    lock.unlock();
    step.done(std::move(step.error));
    step.done = nullptr;
    lock.lock();
  } else if (!step.read.empty()) {
    read_again(step.read, lock);
  } else {
    changed_.wait(lock);
  }
}

void AdapterPool::run() {
  Lock lock(mutex_);
  while (!stopped_) {
    try {
      advance(lock);
    } catch (const std::bad_alloc&) {
      changed_.wait_for(lock, kTryAgain);
    }
  }
  while (!waits_.empty()) {
    const AdapterWait::Done done = take_out(*waits_.front());
    lock.unlock();
    done(std::nullopt);
    lock.lock();
  }
}

}  // namespace quire
