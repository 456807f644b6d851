#include "server/http/event_threads.h"

#include <pthread.h>

namespace quire {

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
      contexts_[i % contexts_.size()]->run();
    });
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
