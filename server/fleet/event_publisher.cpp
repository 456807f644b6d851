#include "server/fleet/event_publisher.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <span>
#include <zmq.hpp>

#include "core/base/json/json_memory.h"
#include "core/base/log.h"
#include "core/base/result.h"

namespace quire {

namespace {

using Packed = SortedJson;

constexpr const char* kMedium = "GPU";  // vLLM's word for the computing device's memory
constexpr int kMostAtSubscriber = 100'000;
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

std::array<char, 8> big_endian(std::uint64_t number) {
  std::array<char, 8> bytes;
  for (int i = 0; i < 8; ++i)
    bytes[static_cast<std::size_t>(i)] = static_cast<char>(number >> (8 * (7 - i)));
  return bytes;
}

std::uint64_t number_in(const zmq::message_t& frame) {
  std::uint64_t number = 0;
  for (const unsigned char byte : std::span(frame.data<unsigned char>(), frame.size()))
    number = number << 8 | byte;
  return number;
}

// An element for each block: the names of its media, or null.
Packed extra_keys(const CacheEvent& event) {
  Packed keys = Packed::array();
  for (std::size_t i = 0; i < event.hashes.size(); ++i)
    keys.push_back(nullptr);
  for (const CacheEvent::Media& media : event.media) {
    Packed& of_block = keys[media.block];
    if (of_block.is_null()) of_block = Packed::array();
    of_block.push_back(fmt::format("{:016x}{:016x}", media.key.high, media.key.low));
  }
  return keys;
}

Packed packed(const CacheEvent& event) {
  switch (event.kind) {
    case CacheEvent::Kind::kStored: {
      Packed tokens = Packed::array();
      for (const TokenId token : event.tokens)
        tokens.push_back(token.value);
      const std::size_t block_size = event.tokens.size() / event.hashes.size();
      const Packed parent = event.parent ? Packed(*event.parent) : Packed(nullptr);
      Packed stored =
          Packed::array({"BlockStored", event.hashes, parent, std::move(tokens), block_size, nullptr, kMedium});
      if (!event.adapter.empty() || !event.media.empty())
        stored.push_back(event.adapter.empty() ? Packed(nullptr) : Packed(event.adapter));
      if (!event.media.empty()) stored.push_back(extra_keys(event));
      return stored;
    }
    case CacheEvent::Kind::kRemoved: return Packed::array({"BlockRemoved", event.hashes, kMedium});
    case CacheEvent::Kind::kCleared: break;
  }
  return Packed::array({"AllBlocksCleared"});
}

// ZeroMQ's convention, and vLLM's: an endpoint on this machine is bound, any other is connected.
bool is_bound(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

}  // namespace

struct CacheEventPublisher::Sockets {
  zmq::context_t context{1};
  zmq::socket_t events{context, zmq::socket_type::pub};
  std::optional<zmq::socket_t> replay;

  // Binds or connects, and returns the actual endpoint. `checks`: accepts an address in use and touches no path.
  static std::string open(zmq::socket_t& socket, const std::string& endpoint, bool binds, const char* key,
                          bool checks = false) {
    if (checks && endpoint.starts_with("ipc://")) return check_path(endpoint, key);
    try {
      socket.set(zmq::sockopt::linger, 0);
      if (!binds) {
        socket.connect(endpoint);
        return endpoint;
      }
      socket.bind(endpoint);
      return socket.get(zmq::sockopt::last_endpoint);
    } catch (const zmq::error_t& error) {
      if (checks && error.num() == EADDRINUSE) return endpoint;
      throw StartupError(fmt::format("{}: '{}' cannot be used: {}", key, endpoint, error.what()));
    }
  }
  static std::string check_path(const std::string& endpoint, const char* key) {
    const std::filesystem::path path = endpoint.substr(std::string_view("ipc://").size());
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    if (::access(folder.c_str(), W_OK | X_OK) == 0) return endpoint;
    throw StartupError(fmt::format("{}: '{}' cannot be used: {}", key, endpoint, std::strerror(errno)));
  }
};

CacheEventPublisher::CacheEventPublisher(const CacheEventOptions& options)
    : options_(options), sockets_(std::make_unique<Sockets>()), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_ < 0) throw StartupError("no descriptor is left for kv_cache.events");
  sockets_->events.set(zmq::sockopt::sndhwm, kMostAtSubscriber);
  endpoint_ = Sockets::open(sockets_->events, options.endpoint, is_bound(options.endpoint), "kv_cache.events.endpoint");
  if (!options.replay_endpoint.empty()) {
    sockets_->replay.emplace(sockets_->context, zmq::socket_type::router);
    // A client that asks again before it reads the last answer loses what exceeds this.
    sockets_->replay->set(zmq::sockopt::sndhwm, static_cast<int>(options.buffer_size) + 2);
    replay_endpoint_ =
        Sockets::open(*sockets_->replay, options.replay_endpoint, true, "kv_cache.events.replay_endpoint");
  }
  log::info("kv_cache.events: changes of the prefix cache are published at {}", endpoint_);
  thread_ = std::thread([this] { run(); });
}

void CacheEventPublisher::check(const CacheEventOptions& options) {
  Sockets sockets;
  Sockets::open(sockets.events, options.endpoint, is_bound(options.endpoint), "kv_cache.events.endpoint", true);
  if (options.replay_endpoint.empty()) return;
  sockets.replay.emplace(sockets.context, zmq::socket_type::router);
  Sockets::open(*sockets.replay, options.replay_endpoint, true, "kv_cache.events.replay_endpoint", true);
}

CacheEventPublisher::~CacheEventPublisher() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  thread_.join();
  close(wake_);
}

bool CacheEventPublisher::has_room() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::cmp_less(queue_.size(), options_.max_queued);
}

bool CacheEventPublisher::publish(const std::string& topic, CacheEvents events) noexcept {
  bool is_taken = false;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = next_number_++;
    try {
      const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      if (std::cmp_less(queue_.size(), options_.max_queued)) {
        queue_.push_back({number, topic, time, std::move(events)});
        is_taken = true;
      }
    } catch (const std::exception&) {  // no memory: the batch is lost
    }
  }
  if (is_taken) {
    wake();
  } else {
    num_lost_.fetch_add(1, std::memory_order_relaxed);
  }
  return is_taken;
}

void CacheEventPublisher::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);  // full: the thread is awake
}

void CacheEventPublisher::run() {
  pthread_setname_np(pthread_self(), "kv-events");
  std::array<zmq::pollitem_t, 2> waits = {{{nullptr, wake_, ZMQ_POLLIN, 0}, {nullptr, 0, ZMQ_POLLIN, 0}}};
  if (sockets_->replay) waits[1].socket = sockets_->replay->handle();
  const std::size_t num_waits = sockets_->replay ? 2 : 1;
  bool is_stopping = false;
  while (!is_stopping) {
    try {
      zmq::poll(waits.data(), num_waits, std::chrono::milliseconds(-1));
      std::uint64_t num_woken = 0;
      [[maybe_unused]] const ssize_t size = ::read(wake_, &num_woken, sizeof num_woken);
      std::deque<Batch> batches;
      {
        const std::lock_guard lock(mutex_);
        batches.swap(queue_);
        is_stopping = is_stopping_;
      }
      for (const Batch& batch : batches)
        send(batch);
      if (num_waits > 1 && (waits[1].revents & ZMQ_POLLIN) != 0) answer_replay();
    } catch (const std::exception& error) {
      log::warn("kv_cache.events: {}", error.what());
    }
  }
}

// A batch whose payload cannot be allocated is skipped; subscribers see the gap in the numbers.
void CacheEventPublisher::send(const Batch& batch) {
  Packed events = Packed::array();
  for (const CacheEvent& event : batch.events)
    events.push_back(packed(event));
  std::string payload;
  Packed::to_msgpack(Packed::array({batch.time, std::move(events), 0}), payload);
  const std::array<char, 8> number = big_endian(batch.number);
  sockets_->events.send(zmq::buffer(batch.topic), zmq::send_flags::sndmore);
  sockets_->events.send(zmq::buffer(number), zmq::send_flags::sndmore);
  sockets_->events.send(zmq::buffer(payload), zmq::send_flags::dontwait);
  if (sockets_->replay && options_.buffer_size > 0) {
    if (std::cmp_greater_equal(sent_.size(), options_.buffer_size)) sent_.pop_front();
    sent_.emplace_back(batch.number, std::move(payload));
  }
}

// A request is [client, empty, first number]. The answer: each batch from that number on, then -1 and an empty one.
void CacheEventPublisher::answer_replay() {
  zmq::socket_t& replay = *sockets_->replay;
  std::vector<zmq::message_t> frames;
  bool has_more = true;
  while (has_more) {
    frames.emplace_back();
    if (!replay.recv(frames.back(), zmq::recv_flags::dontwait)) return;
    has_more = frames.back().more();
  }
  if (frames.size() != 3 || frames[2].size() != 8) return;
  const std::uint64_t first = number_in(frames[2]);
  const auto send_to_client = [&](std::uint64_t number, const std::string& payload) {
    const std::array<char, 8> bytes = big_endian(number);
    const auto flags = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    return replay.send(zmq::buffer(frames[0].data(), frames[0].size()), flags) &&
           replay.send(zmq::const_buffer{}, flags) && replay.send(zmq::buffer(bytes), flags) &&
           replay.send(zmq::buffer(payload), zmq::send_flags::dontwait);
  };
  for (const auto& [number, payload] : sent_) {
    if (number >= first && !send_to_client(number, payload)) return;
  }
  send_to_client(kEnd, "");
}

bool NamedAdapterEvents::publish(CacheEvents events) noexcept {
  try {
    for (CacheEvent& event : events) {
      if (!event.adapter.empty()) event.adapter = adapters_->name_of(event.adapter).value_or(event.adapter);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return next_->publish(std::move(events));
}

}  // namespace quire
