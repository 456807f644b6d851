#include "server/api/common/store/background_responses.h"

#include "server/api/common/json.h"

namespace quire {

namespace {

std::string as_cancelled(const std::string& body) {
  Json response = Json::parse(body);
  response["status"] = "cancelled";
  return dump_json(response);
}

}  // namespace

void BackgroundResponses::add(const std::string& id, std::string owner, std::string body,
                              std::function<void()> interrupt) {
  const std::lock_guard lock(mutex_);
  running_.insert_or_assign(id, Running{std::move(owner), std::move(body), std::move(interrupt)});
}

void BackgroundResponses::update(const std::string& id, std::string body) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found != running_.end() && !found->second.is_cancelled) found->second.body = std::move(body);
}

BackgroundResponses::Running* BackgroundResponses::running(std::string_view id, std::string_view owner) {
  const auto found = running_.find(id);
  return found != running_.end() && found->second.owner == owner ? &found->second : nullptr;
}

std::optional<std::string> BackgroundResponses::find(std::string_view id, std::string_view owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.owner != owner) return std::nullopt;
  return found->second.is_erased ? std::string() : found->second.body;
}

std::optional<std::string> BackgroundResponses::cancel(std::string_view id, std::string_view owner) {
  std::function<void()> interrupt;
  std::optional<std::string> body;
  {
    const std::lock_guard lock(mutex_);
    Running* const found = running(id, owner);
    if (found == nullptr) return std::nullopt;
    if (found->is_erased) return std::string();
    if (!found->is_settled && !found->is_cancelled) {
      interrupt = found->interrupt;
      found->body = as_cancelled(found->body);
      found->is_cancelled = true;
    }
    body = found->body;
  }
  if (interrupt) interrupt();
  return body;
}

bool BackgroundResponses::erase(std::string_view id, std::string_view owner) {
  std::function<void()> interrupt;
  {
    const std::lock_guard lock(mutex_);
    Running* const found = running(id, owner);
    if (found == nullptr || found->is_erased) return false;
    interrupt = found->interrupt;
    found->is_erased = true;
    if (!found->is_settled) found->is_cancelled = true;
  }
  interrupt();
  return true;
}

bool BackgroundResponses::settle(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.is_cancelled) return false;
  found->second.is_settled = true;
  return true;
}

bool BackgroundResponses::is_cancelled(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  return found != running_.end() && found->second.is_cancelled;
}

bool BackgroundResponses::is_erased(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  return found != running_.end() && found->second.is_erased;
}

void BackgroundResponses::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  running_.erase(id);
}

std::size_t BackgroundResponses::count() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

}  // namespace quire
