// run_by: lets a coroutine run work on another thread and resume on its own. guarded: turns an exception of such work
// into an error. Runs on the coroutine's thread; the work on the thread that it is posted to.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "core/base/result.h"
#include "server/wire/wakeup.h"

namespace quire {

// Runs `work` on the thread of `post` and resumes on the caller's executor; throws the exception of `work` or `post`.
// The wait has its memory before the work is posted and ends with the work, so that the caller's frame outlives it.
template <class T>
[[gnu::noinline]] boost::asio::awaitable<T> run_by(std::function<void(std::function<void()>)> post,
                                                   std::function<T()> work) {
  struct Shared {
    explicit Shared(const boost::asio::any_io_executor& executor) : done(executor) {}
    Wakeup done;
    std::optional<T> result;
    std::exception_ptr failure;
  };
  const auto executor = co_await boost::asio::this_coro::executor;
  const auto shared = std::make_shared<Shared>(executor);
  const std::function<void()> job = [&work, shared]() noexcept {
    try {
      shared->result.emplace(work());
    } catch (...) {
      shared->failure = std::current_exception();
    }
    shared->done.signal();
  };
  const std::function<void()> start = [&]() noexcept {
    try {
      post(job);
    } catch (...) {
      shared->failure = std::current_exception();
      shared->done.signal();
    }
  };
  co_await shared->done.wait_for(start);
  if (shared->failure) std::rethrow_exception(shared->failure);
  co_return *std::move(shared->result);
}

// Returns the result of `work`, or an error if it throws.
template <class T>
std::function<Result<T>()> guarded(const std::string& request_id, std::function<Result<T>()> work) {
  return [&request_id, work = std::move(work)]() -> Result<T> {
    try {
      return work();
    } catch (const std::bad_alloc& failure) {
      log::error("request {}: {}", request_id, failure.what());
      return tl::make_unexpected(out_of_memory());
    } catch (const std::exception& failure) {
      log::error("request {}: {}", request_id, failure.what());
      return quire::failure(ErrorKind::kInternal, "The request could not be processed", "internal_error");
    }
  };
}

}  // namespace quire
