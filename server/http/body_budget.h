// BodyBudget: limits the memory of request bodies that are not parsed yet. Any thread. Bytes are charged as they
// arrive, by upload and by client (an API key or an address). When the budget is full, the largest unfinished upload of
// the client with the most bytes is cut; bodies up to kSmallBody have a share of their own. Invariant: the charged
// bytes exceed the limit by at most the uploads that were cut and have not ended yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace quire {

class BodyBudget {
 public:
  static constexpr std::int64_t kSmallBody = 65536;

  // One request's body, from its first byte until it is parsed. One thread at a time. Must not outlive its budget.
  class Upload {
   public:
    // `cut`: called at most once, from any thread, with the budget locked: it only posts.
    Upload(BodyBudget& budget, std::string client, std::function<void()> cut);
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    // Charges further bytes; false where the body must be dropped, because it was cut or the budget is full.
    bool take(std::int64_t num_bytes, std::int64_t bound);
    // Call it when the whole body has arrived: it cannot be cut any more.
    void complete();
    bool was_cut() const;

   private:
    friend class BodyBudget;
    struct Larger {
      bool operator()(const Upload* a, const Upload* b) const;
    };
    BodyBudget& budget_;
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
  using Uploads = std::set<Upload*, Upload::Larger>;
  struct Client {
    std::int64_t num_bytes = 0;
    std::int64_t num_uploads = 0;
    Uploads unfinished;  // the largest first
  };
  using Clients = std::map<std::string, Client>;
  using Rank = std::pair<std::int64_t, std::string>;

  // Each requires mutex_.
  void charge(Upload& upload, std::int64_t num_bytes);
  void enlist(Upload& upload);  // among those that may be cut
  void withdraw(Upload& upload);
  void rank(const Clients::value_type& client);
  void unrank(const Clients::value_type& client);
  bool fits(const Upload& upload, std::int64_t bound) const;
  bool make_room(Upload& upload, std::int64_t bound);

  mutable std::mutex mutex_;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_bytes_cut_ = 0;  // of uploads that were cut and have not ended yet
  std::int64_t num_cut_ = 0;
  Clients clients_;
  std::set<Rank> heaviest_;  // clients that have unfinished uploads; the heaviest last
};

}  // namespace quire
