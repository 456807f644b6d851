// CostlessEngine: the engine behind a RequestQueue for measuring the server alone. Each of its steps gives every live
// request one token; the token's text is the time of that step. Any thread; its own thread is the engine's.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "core/engine/request_queue.h"
#include "core/text/tokenizer.h"
#include "server/api/common/served_model.h"

namespace quire::bench {

class CostlessEngine {
 public:
  // Steps begin once `num_streams` are live and then follow each other every `period`; zero: at once.
  CostlessEngine(std::size_t num_streams, std::chrono::nanoseconds period);
  ~CostlessEngine();
  CostlessEngine(const CostlessEngine&) = delete;
  CostlessEngine& operator=(const CostlessEngine&) = delete;

  RequestQueue& queue() { return queue_; }
  // Steps that began more than a period late.
  std::int64_t num_late() const { return num_late_.load(); }

 private:
  struct Live {
    Submission submission;
    std::int32_t left;
  };

  void run();
  void take_submissions();
  void step();

  std::size_t num_streams_;
  std::chrono::nanoseconds period_;
  RequestQueue queue_;
  std::vector<Live> live_;
  std::atomic<std::int64_t> num_late_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// A model called "costless" on this queue, whose vocabulary is the stamps.
std::shared_ptr<ServedModel> costless_model(RequestQueue& queue);

}  // namespace quire::bench
