// TextPool: the threads that turn request bodies into requests. Any thread, except start() and join(): one thread at a
// time. Jobs wait in two lanes, and within a lane by client; the client with the least time used goes next, so that
// neither a costly request nor a client with many requests holds others up. With several threads, half of them take
// quick jobs only; the others run at a low priority, and one client's long jobs never occupy all of them.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace quire {

// kQuick: a short body; its costly work is abandoned after kQuickTime and restarted as kLong.
enum class TextLane { kQuick, kLong };
inline constexpr std::chrono::milliseconds kQuickTime{20};
inline constexpr std::size_t kNumTextLanes = 2;

// Decides which job runs next. One thread at a time; the caller supplies the times. Only add() allocates memory.
class TextSchedule {
 public:
  using Job = std::function<void()>;
  struct Next {
    Job job;
    TextLane lane = TextLane::kQuick;
    std::string_view client;  // valid until the client is charged
  };

  // `most_long`: limit of one client's long jobs that run at once.
  explicit TextSchedule(std::size_t most_long) : most_long_(most_long) {}

  void add(TextLane lane, const std::string& client, Job job);
  std::optional<Next> take(bool quick_only);
  // Charges the cost of a job that was taken.
  void charge(TextLane lane, std::string_view client, double seconds);
  std::size_t num_waiting(TextLane lane) const { return lanes_[index(lane)].num_waiting; }
  double seconds_used(TextLane lane) const { return lanes_[index(lane)].seconds; }

 private:
  struct Client;
  using Clients = std::map<std::string, Client, std::less<>>;
  struct Earlier {
    bool operator()(const Clients::value_type* a, const Clients::value_type* b) const;
  };
  using Candidates = std::set<Clients::value_type*, Earlier>;
  struct Client {
    double used = 0.0;  // seconds; a client that returns starts at the lane's least
    std::size_t num_running = 0;
    std::deque<Job> waiting;
    Candidates::node_type place;  // empty while it is not a candidate
  };
  struct Lane {
    Clients clients;        // clients with waiting or running jobs
    Candidates candidates;  // clients whose next job may run, by time used
    double least = 0.0;     // time used by the client served last
    double used = 0.0;      // seconds; a lane that returns starts at the other's
    double seconds = 0.0;   // since the start
    std::size_t num_waiting = 0;
  };
  static std::size_t index(TextLane lane) { return static_cast<std::size_t>(lane); }
  Next take_from(TextLane lane);
  bool may_run(TextLane lane, const Client& client) const;
  static void enlist(Lane& lane, Clients::value_type& client);
  static void withdraw(Lane& lane, Clients::value_type& client);

  std::size_t most_long_;
  std::array<Lane, kNumTextLanes> lanes_;
};

class TextPool {
 public:
  struct Stats {
    std::array<std::size_t, kNumTextLanes> num_waiting{};
    std::array<double, kNumTextLanes> seconds{};
  };

  explicit TextPool(std::size_t num_threads);
  ~TextPool() {
    stop();
    join();
  }
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  void start();
  // Jobs must not throw.
  void post(TextLane lane, const std::string& client, TextSchedule::Job job);
  // Ends costly work under way early: jobs check cut().
  void interrupt() { cut_.request_stop(); }
  std::stop_token cut() const { return cut_.get_token(); }
  // Starts no further job.
  void stop();
  void join();
  Stats stats() const;

 private:
  struct Worker {
    std::condition_variable woken;
    bool is_idle = false;  // idle and not woken
  };

  void run(std::size_t number);
  // Picks an idle thread to look for a job of the lane and marks it busy; null: all are busy. Requires the lock.
  Worker* claim_idle(TextLane lane);

  const std::size_t num_threads_;
  const std::size_t num_quick_;  // the first of them take quick jobs only
  std::stop_source cut_;
  mutable std::mutex mutex_;
  std::vector<Worker> workers_;
  TextSchedule schedule_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
