#include "server/ops/stream_store.h"

namespace quire {

SavedStream::~SavedStream() {
  store_.give_back(owner_, num_bytes_);
}

std::string SavedStream::append(std::string_view events) {
  std::string numbered;
  std::vector<std::function<void()>> wakers;
  {
    const std::lock_guard lock(mutex_);
    while (!events.empty()) {
      const std::size_t end = events.find("\n\n");
      const std::size_t size = end == std::string_view::npos ? events.size() : end + 2;
      std::string event = "id: " + std::to_string(events_.size() + 1) + "\n" + std::string(events.substr(0, size));
      events.remove_prefix(size);
      if (events_.size() >= begin_after_) numbered += event;
      const auto bytes = static_cast<std::int64_t>(event.size());
      // Numbers continue without the lost events, so that the sent stream stays consistent.
      lost_ = lost_ || !store_.take(owner_, bytes);
      if (!lost_) num_bytes_ += bytes;
      events_.push_back(lost_ ? std::string() : std::move(event));
    }
    wakers.swap(wakers_);
  }
  for (const auto& wake : wakers)
    wake();
  return numbered;
}

void SavedStream::finish() {
  std::vector<std::function<void()>> wakers;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    wakers.swap(wakers_);
  }
  for (const auto& wake : wakers)
    wake();
}

void SavedStream::revoke() {
  std::vector<std::function<void()>> wakers;
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    wakers.swap(wakers_);
  }
  for (const auto& wake : wakers)
    wake();
}

bool SavedStream::is_lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

SavedStream::Rest SavedStream::after(std::size_t number, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  Rest rest;
  rest.lost = lost_ || number > events_.size();
  if (rest.lost) return rest;
  rest.last = number;
  while (rest.last < events_.size() && rest.events.size() < kSlice)
    rest.events += events_[rest.last++];
  rest.finished = finished_ && rest.last == events_.size();
  if (wake && rest.events.empty() && !finished_) wakers_.push_back(std::move(wake));
  return rest;
}

void StreamStore::forget_old(Clock::time_point now) {
  std::erase_if(streams_, [now](const auto& each) { return each.second.until && *each.second.until < now; });
}

std::shared_ptr<SavedStream> StreamStore::open(const std::string& key_name, const std::string& request_id,
                                               Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  forget_old(now);
  auto stream = std::make_shared<SavedStream>(*this, key_name);
  const auto [place, added] = streams_.try_emplace(Id(key_name, request_id), Entry{stream, std::nullopt});
  return added ? place->second.stream : nullptr;
}

bool StreamStore::take(const std::string& owner, std::int64_t bytes) {
  const std::int64_t most = max_bytes_.load();
  const std::lock_guard lock(use_mutex_);
  std::int64_t& own = bytes_by_owner_[owner];
  const bool fits = num_bytes_.load() + bytes <= most && own + bytes <= (owner.empty() ? most : most / 2);
  if (fits) {
    own += bytes;
    num_bytes_ += bytes;
  }
  if (own == 0) bytes_by_owner_.erase(owner);
  return fits;
}

void StreamStore::give_back(const std::string& owner, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(use_mutex_);
  num_bytes_ -= bytes;
  const auto own = bytes_by_owner_.find(owner);
  if ((own->second -= bytes) == 0) bytes_by_owner_.erase(own);
}

void StreamStore::revoke(const std::string& key_name) {
  const std::lock_guard lock(mutex_);
  for (auto at = streams_.lower_bound(IdView(key_name, "")); at != streams_.end() && at->first.first == key_name;) {
    at->second.stream->revoke();
    at = streams_.erase(at);
  }
}

void StreamStore::close(const std::string& key_name, const std::string& request_id, Clock::time_point until) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(IdView(key_name, request_id));
  if (found != streams_.end()) found->second.until = until;
}

std::shared_ptr<SavedStream> StreamStore::find(const std::string& key_name, const std::string& request_id,
                                               Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  forget_old(now);
  const auto found = streams_.find(IdView(key_name, request_id));
  return found == streams_.end() ? nullptr : found->second.stream;
}

}  // namespace quire
