// Requests: the requests that an engine has accepted: takes arrivals from the queue, checks and admits them, ends
// aborted and overdue ones, and sends last events. Engine thread only. Invariants: a request gets exactly one finish
// event per choice; no request's failure affects another; a generation outlives each step in flight that refers to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/thread_role.h"
#include "core/engine/engine_parts.h"
#include "core/engine/generation.h"
#include "core/engine/held_ends.h"
#include "core/engine/request_queue.h"

namespace quire {

inline constexpr const char* kCutByDrain = "The server shut down before the request was finished.";

class Requests {
 public:
  using Live = std::unordered_map<std::string, std::unique_ptr<LiveRequest>>;  // by id

  // `publish` is called before an end is sent, so that the statistics count each request whose client has its whole
  // answer.
  Requests(EngineParts& parts, RequestQueue& queue, std::function<void()> publish);

  // Takes arrivals and aborts, and ends overdue requests; from `drain_by` on, all requests.
  void receive(Clock::time_point now, Clock::time_point drain_by) QUIRE_REQUIRES(kEngineThread);
  // Sends held ends whose prompts the shared store has.
  void send_held(Clock::time_point now) QUIRE_REQUIRES(kEngineThread) { held_ends_.send(now); }
  // Releases the queue tickets of sequences that start for the first time.
  void note_started(const StepPlan& plan, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  std::unique_ptr<Generation> make_generation(LiveRequest& live, std::int32_t choice) QUIRE_REQUIRES(kEngineThread);

  // Sends the last event; the last choice to end destroys the request.
  void end(Generation& generation, FinishInfo info) QUIRE_REQUIRES(kEngineThread);
  void end(LiveRequest& live, FinishReason reason, const SharedError& error) QUIRE_REQUIRES(kEngineThread);
  // Ends all requests, because the server drains, or the engine has failed; then also future ones.
  void cut_all() QUIRE_REQUIRES(kEngineThread);
  void fail_all(const SharedError& error) QUIRE_REQUIRES(kEngineThread);

  const Live& live() const { return live_; }
  bool are_done() const { return live_.empty() && held_ends_.empty(); }
  std::optional<Clock::time_point> next_deadline() const;

 private:
  using Deadlines = std::set<std::pair<Clock::time_point, LiveRequest*>>;

  void accept(Submission submission, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  Result<void> admit(Submission submission, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  Result<void> check(const Request& request) const;
  std::unique_ptr<LiveRequest> make_live(Submission& submission) QUIRE_REQUIRES(kEngineThread);
  void abort(const Abort& asked) QUIRE_REQUIRES(kEngineThread);
  void cut_overdue(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void end_all(FinishReason reason, const SharedError& error) QUIRE_REQUIRES(kEngineThread);
  void erase(LiveRequest& live);

  EngineParts& parts_;
  RequestQueue& queue_;
  const std::function<void()> publish_;
  HeldEnds held_ends_;
  Live live_;
  Deadlines deadlines_;
  Deadlines queue_deadlines_;
  std::vector<Submission> submissions_;
  std::vector<Abort> aborts_;
  std::uint64_t next_seed_;
  std::int64_t num_sequences_made_ = 0;
  bool has_failed_ = false;
};

}  // namespace quire
