// ContentHash: a hash (XXH3, 128 bits) of all bytes of a file: the hash of its pieces' hashes, so that several threads
// or a writer can compute it piece by piece. Value types; any thread. It is not safe against files made to collide.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace quire {

struct ContentHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const ContentHash&) const = default;
};

// 32 hexadecimal digits.
std::string hex_digits(const ContentHash& hash);

inline constexpr std::size_t kHashedPiece = std::size_t{4} << 20;

// Takes a file's bytes in order, in pieces of kHashedPiece bytes; the last piece may be shorter.
class ContentDigest {
 public:
  void add_piece(std::span<const std::byte> piece);
  ContentHash finish() const;

 private:
  friend ContentHash hash_content(std::span<const std::byte> bytes, const std::stop_token& stop);
  std::vector<ContentHash> pieces_;
  std::uint64_t num_bytes_ = 0;
};

// Hashes with several threads, including the calling one. After a stop request, it returns soon, with an undefined
// value.
ContentHash hash_content(std::span<const std::byte> bytes, const std::stop_token& stop = {});

// Work on a thread of its own that receives a stop token. The destructor requests the stop and waits.
template <class T>
class BackgroundWork {
 public:
  explicit BackgroundWork(std::function<T(const std::stop_token&)> work)
      : result_(std::async(std::launch::async,
                           [work = std::move(work), token = stop_.get_token()] { return work(token); })) {}
  ~BackgroundWork() { stop_.request_stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // Waits for the result; meanwhile calls `poll`, which may throw, every 50 ms. Rethrows the work's exception. Once.
  T wait(const std::function<void()>& poll) {
    while (result_.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (poll) poll();
    }
    return result_.get();
  }

 private:
  std::stop_source stop_;
  std::future<T> result_;  // its destructor waits
};

}  // namespace quire
