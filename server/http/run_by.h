// run_by: a coroutine runs work on another thread and resumes on its own. guarded: turns an exception of such work into
// an error. Runs on the coroutine's thread; the work on the thread that it is posted to.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/base/result.h"

namespace quire {

// Runs `work` on the thread of `post` and resumes on the caller's executor. `work` must not throw.
template <class T>
[[gnu::noinline]] boost::asio::awaitable<T> run_by(std::function<void(std::function<void()>)> post,
                                                   std::function<T()> work) {
  namespace asio = boost::asio;
  auto start = [&](auto handler) {
    // Shared, for what is posted has to be copyable.
    auto shared = std::make_shared<decltype(handler)>(std::move(handler));
    post([&work, shared]() {
      auto done = std::make_shared<T>(work());
      const auto executor = asio::get_associated_executor(*shared);
      asio::post(executor, [shared, done]() mutable { std::move (*shared)(std::move(*done)); });
    });
  };
  co_return co_await asio::async_initiate<decltype(asio::use_awaitable), void(T)>(start, asio::use_awaitable);
}

// The result of `work`, or an internal error where it throws.
template <class T>
std::function<Result<T>()> guarded(const std::string& request_id, std::function<Result<T>()> work) {
  return [&request_id, work = std::move(work)]() -> Result<T> {
    try {
      return work();
    } catch (const std::exception& failure) {
      log::error("request {}: {}", request_id, failure.what());
      return quire::failure(ErrorKind::kInternal, "The request could not be processed", "internal_error");
    }
  };
}

}  // namespace quire
