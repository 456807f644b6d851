#include "server/ops/stream_store.h"

namespace quire {

SavedStream::~SavedStream() {
  store_.num_bytes_ -= num_bytes_;
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
      // The numbers continue without their events, so that what is sent stays consistent.
      lost_ = lost_ || store_.num_bytes_.load() + bytes > store_.max_bytes_.load();
      if (!lost_) {
        store_.num_bytes_ += bytes;
        num_bytes_ += bytes;
      }
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

SavedStream::Rest SavedStream::after(std::size_t number, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  Rest rest;
  rest.last = events_.size();
  rest.finished = finished_;
  rest.lost = lost_ || number > events_.size();
  if (rest.lost) return rest;
  for (std::size_t i = number; i < events_.size(); ++i)
    rest.events += events_[i];
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
  const auto [place, added] = streams_.try_emplace(Id(key_name, request_id));
  if (!added) return nullptr;
  place->second.stream = std::make_shared<SavedStream>(*this);
  return place->second.stream;
}

void StreamStore::close(const std::string& key_name, const std::string& request_id, Clock::time_point until) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(Id(key_name, request_id));
  if (found != streams_.end()) found->second.until = until;
}

std::shared_ptr<SavedStream> StreamStore::find(const std::string& key_name, const std::string& request_id,
                                               Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  forget_old(now);
  const auto found = streams_.find(Id(key_name, request_id));
  return found == streams_.end() ? nullptr : found->second.stream;
}

}  // namespace quire
