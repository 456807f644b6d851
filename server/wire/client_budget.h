// ClientBudget: limits the memory that clients occupy on their way in or out: unparsed request bodies and unread
// answers. Any thread. Bytes are charged by client (an API key or an address). When the budget is full, the largest
// unfinished charge of the client with the most bytes is cut; charges up to kSmall have a share of their own.
// Invariants: the charged bytes exceed the limit by at most the charges that were cut and have not ended yet;
// operations on an existing charge allocate no memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace quire {

class ClientBudget {
 public:
  static constexpr std::int64_t kSmall = 65536;
  struct Client;
  using Account = std::pair<const std::string, Client>;

  // The bytes of a request's body until it is parsed, or of an answer from its first wait for the client until it is
  // written. One thread at a time. Must not outlive its budget.
  class Charge {
   public:
    // `cut`: called at most once, from any thread, with the budget locked: it must not throw.
    Charge(ClientBudget& budget, std::string client, std::function<void()> cut);
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

    // Charges more or fewer bytes; false if they must be dropped: this charge was cut, or the budget is full.
    bool take(std::int64_t num_bytes, std::int64_t bound);
    // Marks the body as whole: the charge cannot be cut any more.
    void complete();
    bool was_cut() const;

   private:
    friend class ClientBudget;
    struct Larger {
      bool operator()(const Charge* a, const Charge* b) const;
    };
    ClientBudget& budget_;
    const std::function<void()> cut_;
    // Guarded by the budget's mutex.
    Account* client_ = nullptr;
    std::set<Charge*, Larger>::node_type place_;  // empty while the charge may be cut
    std::int64_t num_bytes_ = 0;
    bool unfinished_ = true;
    bool was_cut_ = false;
  };

  std::int64_t num_bytes() const;
  std::int64_t num_cut() const;  // since the start

 private:
  using Charges = std::set<Charge*, Charge::Larger>;
  struct Lighter {
    bool operator()(const Account* a, const Account* b) const;
  };
  using Ranks = std::set<Account*, Lighter>;

  // Each requires mutex_.
  void add(Charge& charge, std::int64_t num_bytes);
  void enlist(Charge& charge);  // adds it to those that may be cut
  void withdraw(Charge& charge);
  void rank(Account& client);
  void unrank(Account& client);
  bool fits(const Charge& charge, std::int64_t bound) const;
  bool make_room(Charge& charge, std::int64_t bound);

  mutable std::mutex mutex_;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_bytes_cut_ = 0;  // bytes of cut charges that have not ended
  std::int64_t num_cut_ = 0;
  std::map<std::string, Client> clients_;
  Ranks heaviest_;  // clients with unfinished charges, the heaviest last
};

struct ClientBudget::Client {
  std::int64_t num_bytes = 0;
  std::int64_t num_charges = 0;
  Charges unfinished;      // the largest first
  Ranks::node_type place;  // empty while the client is among the heaviest
};

}  // namespace quire
