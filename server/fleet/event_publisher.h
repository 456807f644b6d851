// CacheEventPublisher: publishes changes of the prefix caches like vLLM, as ZeroMQ messages of a topic, a number of
// eight bytes and a batch in MessagePack, and replays them from a number on when asked. publish(): any thread; never
// waits: events beyond the queue's size are lost and counted. Its thread `kv-events` owns the sockets. Invariant:
// batches are numbered in the order of publish(), lost ones too, so that a subscriber sees the gap.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/engine/adapter_pool.h"
#include "core/kv/index/cache_events.h"
#include "server/fleet/fleet_options.h"

namespace quire {

class CacheEventPublisher {
 public:
  // Throws StartupError for an endpoint that cannot be used.
  explicit CacheEventPublisher(const CacheEventOptions& options);
  // Throws the same errors without publishing. An address that another process listens on is no error.
  static void check(const CacheEventOptions& options);
  ~CacheEventPublisher();  // sends what is queued
  CacheEventPublisher(const CacheEventPublisher&) = delete;
  CacheEventPublisher& operator=(const CacheEventPublisher&) = delete;

  // Returns false if the events are lost.
  bool publish(const std::string& topic, CacheEvents events) noexcept;
  bool has_room() const noexcept;
  // Number of events published so far, lost ones included; the next event has this number.
  std::uint64_t num_taken() const {
    const std::lock_guard lock(mutex_);
    return next_number_;
  }
  std::uint64_t num_lost() const { return num_lost_.load(std::memory_order_relaxed); }
  // The endpoints in use: as the options name them, with the bound port in place of a wildcard.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

 private:
  struct Batch {
    std::uint64_t number = 0;
    std::string topic;
    double time = 0.0;  // seconds since 1970
    CacheEvents events;
  };
  struct Sockets;

  void run();
  void send(const Batch& batch);
  void answer_replay();
  void wake() noexcept;

  const CacheEventOptions options_;
  std::string endpoint_;
  std::string replay_endpoint_;
  std::unique_ptr<Sockets> sockets_;                          // the thread's, once it runs
  std::deque<std::pair<std::uint64_t, std::string>> sent_{};  // the thread's: numbers and payloads
  const int wake_;                                            // an eventfd
  mutable std::mutex mutex_;
  std::deque<Batch> queue_;
  std::uint64_t next_number_ = 0;
  bool is_stopping_ = false;
  std::atomic<std::uint64_t> num_lost_{0};
  std::thread thread_;
};

// Passes another sink's events on with adapters by name; an adapter whose name is gone is called by its content. Engine
// thread only.
class NamedAdapterEvents final : public CacheEventSink {
 public:
  NamedAdapterEvents(std::shared_ptr<CacheEventSink> next, std::shared_ptr<const AdapterPool> adapters)
      : next_(std::move(next)), adapters_(std::move(adapters)) {}
  bool publish(CacheEvents events) noexcept override;
  bool has_room() const noexcept override { return next_->has_room(); }

 private:
  const std::shared_ptr<CacheEventSink> next_;
  const std::shared_ptr<const AdapterPool> adapters_;
};

// Passes one model's cache events to the publisher. Engine thread only.
class ModelEvents final : public CacheEventSink {
 public:
  ModelEvents(std::shared_ptr<CacheEventPublisher> publisher, std::string topic)
      : publisher_(std::move(publisher)), topic_(std::move(topic)) {}
  bool publish(CacheEvents events) noexcept override { return publisher_->publish(topic_, std::move(events)); }
  bool has_room() const noexcept override { return publisher_->has_room(); }

 private:
  const std::shared_ptr<CacheEventPublisher> publisher_;
  const std::string topic_;
};

}  // namespace quire
