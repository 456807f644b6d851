#include "server/threads/event_threads.h"

#include <pthread.h>

#include "core/base/log.h"

namespace quire {

namespace {

constexpr std::chrono::milliseconds kSettle{20};

}  // namespace

EventThreads::EventThreads(std::string name, std::size_t num_threads, bool shared_loop)
    : name_(std::move(name)), num_threads_(num_threads) {
  for (std::size_t i = 0; i < (shared_loop ? 1 : num_threads); ++i) {
    contexts_.push_back(std::make_unique<boost::asio::io_context>(static_cast<int>(shared_loop ? num_threads : 1)));
    guards_.push_back(boost::asio::make_work_guard(*contexts_.back()));
  }
}

void EventThreads::start() {
  for (std::size_t i = 0; i < num_threads_; ++i) {
    threads_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), (name_ + "-" + std::to_string(i)).c_str());
      run(i);
    });
  }
}

// No coroutine catches an exception here, mostly Asio's when memory runs out.
void EventThreads::run(std::size_t number) {
  boost::asio::io_context& context = *contexts_[number % contexts_.size()];
  bool has_failed = false;
  while (!context.stopped()) {
    try {
      if (has_failed) {
        context.run_for(kSettle);  // Asio destroys ended coroutines in handlers of their own
        if (number == 0 && revive_) revive_();
        has_failed = false;
      }
      context.run();
    } catch (const std::exception& failure) {
      log::error("{}: {}", name_, failure.what());
      has_failed = true;
    }
  }
}

void EventThreads::stop() {
  for (const auto& context : contexts_)
    context->stop();
}

void EventThreads::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace quire
