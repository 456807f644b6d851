// FakeEngine: an engine without a model behind a real RequestQueue: each step gives every live choice its next token
// from a script. The default script repeats the prompt's plain tokens once and ends. Any thread, except the script: its
// own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/figures/engine_stats.h"
#include "core/engine/request_queue.h"

namespace quire::test {

class FakeEngine {
 public:
  // The whole output of a choice; max_tokens cuts it, otherwise it ends with end-of-sequence.
  using Script = std::function<std::vector<TokenId>(const Request& request, std::int32_t choice)>;

  explicit FakeEngine(Script script = {}, QueueOptions options = {});
  ~FakeEngine() { stop(); }
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;

  // Ends the thread: nothing is sent any more.
  void stop();

  RequestQueue& queue() { return queue_; }

  // Blocks until this many requests are live (submitted, neither finished nor aborted).
  void wait_live(std::size_t count);
  // Blocks until this many aborts of whole requests were asked for since the start.
  void wait_aborted(std::size_t count);
  // Numbers of running requests and of steps.
  EngineStats stats() const;
  std::shared_ptr<const Request> last_request() const;

  // While held it produces no token, but still takes and aborts requests.
  void hold(bool held);
  // While held: allows this many steps as soon as a request is live.
  void allow_steps(int count);

 private:
  struct Choice {
    std::vector<TokenId> script;
    std::size_t sent = 0;
    bool ended = false;
  };
  struct Live {
    Submission submission;
    std::vector<Choice> choices;
  };

  void run();
  void accept(Submission submission);
  bool step();
  void emit(Live& live, std::int32_t index);
  void end_aborted(Live& live, std::optional<std::int32_t> only);

  Script script_;
  RequestQueue queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Live> live_;
  std::shared_ptr<const Request> last_;
  std::size_t num_aborted_ = 0;
  std::uint64_t num_steps_ = 0;
  bool held_ = false;
  int num_allowed_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire::test
