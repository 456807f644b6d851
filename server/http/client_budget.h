// ClientBudget: limits the memory that clients keep occupied on their way in or out: request bodies that are not parsed
// yet, answers that are not read yet. Any thread. Bytes are charged by client (an API key or an address). When the
// budget is full, the largest unfinished charge of the client with the most bytes is cut; charges up to kSmall have a
// share of their own. Invariant: the charged bytes exceed the limit by at most the charges that were cut and have not
// ended yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace quire {

class ClientBudget {
 public:
  static constexpr std::int64_t kSmall = 65536;

  // One request's body, from its first byte until it is parsed, or an answer, from when its client lets it wait until
  // it is written. One thread at a time. Must not outlive its budget.
  class Charge {
   public:
    // `cut`: called at most once, from any thread, with the budget locked: it only posts.
    Charge(ClientBudget& budget, std::string client, std::function<void()> cut);
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

    // Charges further bytes, or fewer; false where they must be dropped: this charge was cut, or the budget is full.
    bool take(std::int64_t num_bytes, std::int64_t bound);
    // From now on it cannot be cut: the whole body has arrived.
    void complete();
    bool was_cut() const;

   private:
    friend class ClientBudget;
    struct Larger {
      bool operator()(const Charge* a, const Charge* b) const;
    };
    ClientBudget& budget_;
    const std::string client_;
    const std::function<void()> cut_;
    // Guarded by the budget's mutex.
    std::int64_t num_bytes_ = 0;
    bool unfinished_ = true;
    bool was_cut_ = false;
  };

  std::int64_t num_bytes() const;
  std::int64_t num_cut() const;  // since the start

 private:
  using Charges = std::set<Charge*, Charge::Larger>;
  struct Client {
    std::int64_t num_bytes = 0;
    std::int64_t num_charges = 0;
    Charges unfinished;  // the largest first
  };
  using Clients = std::map<std::string, Client>;
  using Rank = std::pair<std::int64_t, std::string>;

  // Each requires mutex_.
  void add(Charge& charge, std::int64_t num_bytes);
  void enlist(Charge& charge);  // among those that may be cut
  void withdraw(Charge& charge);
  void rank(const Clients::value_type& client);
  void unrank(const Clients::value_type& client);
  bool fits(const Charge& charge, std::int64_t bound) const;
  bool make_room(Charge& charge, std::int64_t bound);

  mutable std::mutex mutex_;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_bytes_cut_ = 0;  // of charges that were cut and have not ended yet
  std::int64_t num_cut_ = 0;
  Clients clients_;
  std::set<Rank> heaviest_;  // clients that have unfinished charges; the heaviest last
};

}  // namespace quire
