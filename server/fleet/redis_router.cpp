#include "server/fleet/redis_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace quire {

namespace {

constexpr int kMostRedirections = 5;
constexpr std::size_t kMostMapBytes = std::size_t{1} << 20;

std::string text_of(const RedisAddress& address) {
  return fmt::format("{}:{}", address.host, address.port);
}

}  // namespace

RedisRouter::RedisRouter(boost::asio::io_context& context, const Options& options, std::vector<RedisAddress>& seeds,
                         RedisConnection::Events events)
    : context_(context), options_(options), seeds_(seeds), events_(std::move(events)) {}

void RedisRouter::start() {
  seed_ = seeds_.front();
  connect(seed_);
}

void RedisRouter::connect(const RedisAddress& address) {
  RedisUrl url = options_.url;
  url.host = address.host;
  url.port = address.port;
  RedisConnection::Events events{.up =
                                     [weak = weak_from_this(), address] {
                                       if (const auto self = weak.lock()) self->note_node_up(address);
                                     },
                                 .failed =
                                     [weak = weak_from_this(), address](const std::string& why) {
                                       if (const auto self = weak.lock()) self->note_node_failed(address, why);
                                     }};
  const auto connection =
      std::make_shared<RedisConnection>(context_, url, options_.tls, options_.server.patience,
                                        std::max(options_.max_reply_bytes, kMostMapBytes), std::move(events));
  nodes_[address].connection = connection;
  connection->start();
}

void RedisRouter::note_node_up(const RedisAddress& address) {
  if (is_closed_) return;
  Node& node = nodes_[address];
  node.is_up = true;
  if (std::exchange(node.has_failed, false))
    log::info("{}: the node {} answers again", options_.setting, text_of(address));
  node.pause = {};
  const auto connection = node.connection;
  if (!knows_nodes_) ask_for_map(*connection, address);
  if (knows_nodes_ && !is_up_ && is_home(address)) become_up();
  for (const AskedPtr& asked : std::exchange(node.waiting, {}))
    send(*connection, asked, address);
}

void RedisRouter::note_node_failed(const RedisAddress& address, const std::string& why) {
  if (is_closed_) return;
  const auto self = shared_from_this();
  Node& node = nodes_[address];
  node.connection = nullptr;
  node.is_up = false;
  const bool is_news = !std::exchange(node.has_failed, true);
  node.pause =
      node.pause.count() == 0 ? options_.server.first_pause : std::min(2 * node.pause, options_.server.longest_pause);
  node.again_at = Clock::now() + node.pause;
  for (const AskedPtr& asked : std::exchange(node.waiting, {}))
    asked->done(nullptr);
  if (is_closed_) return;
  if (!knows_nodes_) {
    std::ranges::rotate(seeds_, seeds_.begin() + 1);
    return ++num_seeds_tried_ < seeds_.size() ? start() : fail(why);
  }
  const bool has_others =
      std::ranges::any_of(nodes_, [](const auto& each) { return each.second.connection != nullptr; });
  if (!is_cluster_) return fail(why);
  if (is_home(address) || !has_others) return fail(text_of(address) + ": " + why);
  if (is_news) log::warn("{}: the node {} is not used: {}", options_.setting, text_of(address), why);
  refresh();
}

void RedisRouter::drop(const RedisAddress& address, const std::string& why) {
  const auto connection = std::exchange(nodes_[address].connection, nullptr);
  if (connection == nullptr) return;
  connection->close();
  note_node_failed(address, why);
}

void RedisRouter::ask_for_map(RedisConnection& connection, const RedisAddress& address) {
  is_refreshing_ = true;
  refreshed_at_ = Clock::now();
  connection.call(redis_command({"CLUSTER", "NODES"}), [self = shared_from_this(), address](const RespReply* reply) {
    self->is_refreshing_ = false;
    if (reply != nullptr && !self->is_closed_) self->take_map(reply, address);
  });
}

// A server without a map is not part of a cluster.
void RedisRouter::take_map(const RespReply* reply, const RedisAddress& address) {
  const bool is_first = !std::exchange(knows_nodes_, true);
  auto map = reply->kind == RespReply::Kind::kText ? RedisSlotMap::parse(reply->text, address, options_.tls != nullptr)
                                                   : std::nullopt;
  if (map) {
    is_cluster_ = true;
    slots_ = *std::move(map);
    seeds_ = slots_.nodes();
    const RedisAddress given{options_.url.host, options_.url.port};
    if (std::ranges::find(seeds_, given) == seeds_.end()) seeds_.push_back(given);
  }
  if (is_first && (!is_cluster_ || options_.home.empty())) return become_up();
  if (!is_cluster_ || options_.home.empty()) return;
  const RedisAddress* const home = slots_.find(redis_slot(options_.home));
  if (home == nullptr) return fail("no node has the slot of " + options_.home);
  const Node& node = nodes_[*home];
  if (node.is_up && !is_up_) return become_up();
  if (node.connection == nullptr) connect(*home);
}

void RedisRouter::refresh() {
  if (is_refreshing_ || Clock::now() - refreshed_at_ < options_.server.first_pause) return;
  for (const auto& [address, node] : nodes_) {
    if (node.is_up) return ask_for_map(*node.connection, address);
  }
}

void RedisRouter::become_up() {
  is_up_ = true;
  events_.up();
}

bool RedisRouter::is_home(const RedisAddress& address) const {
  if (!is_cluster_ || options_.home.empty()) return false;
  const RedisAddress* const home = slots_.find(redis_slot(options_.home));
  return home != nullptr && *home == address;
}

void RedisRouter::call(const std::string& key, RedisCommand command, RedisConnection::Done done) {
  if (is_closed_ || !is_up_) return done(nullptr);
  const auto asked = std::make_shared<Asked>(Asked{.command = std::move(command), .done = std::move(done)});
  if (!is_cluster_) return route(asked, seed_);
  asked->slot = redis_slot(key);
  const RedisAddress* const address = slots_.find(asked->slot);
  if (address != nullptr) return route(asked, *address);
  refresh();
  give_nothing(asked, "no node has its slot");
}

// A command waits for a node's first connection only.
void RedisRouter::route(const AskedPtr& asked, RedisAddress address) {
  Node& node = nodes_[address];
  if (node.is_up) return send(*node.connection, asked, address);
  if (node.connection == nullptr && Clock::now() >= node.again_at) connect(address);
  if (!node.has_failed) return node.waiting.push_back(asked);
  refresh();
  give_nothing(asked, "its node does not answer");
}

void RedisRouter::send(RedisConnection& connection, const AskedPtr& asked, const RedisAddress& address) {
  if (asked->is_asking) connection.call(redis_command({"ASKING"}), [](const RespReply* /*reply*/) {});
  RedisConnection::Done done = [self = shared_from_this(), asked, address](const RespReply* reply) {
    self->take_reply(asked, reply, address);
  };
  // A cluster may redirect the command, so it is kept.
  connection.call(is_cluster_ ? asked->command : std::move(asked->command), std::move(done));
}

void RedisRouter::take_reply(const AskedPtr& asked, const RespReply* reply, const RedisAddress& address) {
  if (!is_cluster_ || reply == nullptr || reply->kind != RespReply::Kind::kError) return asked->done(reply);
  if (is_closed_) return asked->done(nullptr);
  const auto redirection = parse_redirection(reply->text);
  if (redirection) return redirect(asked, *redirection, address);
  if (!reply->text.starts_with("CLUSTERDOWN") && !reply->text.starts_with("TRYAGAIN")) return asked->done(reply);
  const std::string why = "it is not ready: " + reply->text;
  asked->done(nullptr);
  drop(address, why);
}

void RedisRouter::redirect(const AskedPtr& asked, RedisRedirection to, const RedisAddress& from) {
  if (to.address.host.empty()) to.address.host = from.host;
  if (++asked->num_redirections > kMostRedirections) return give_nothing(asked, "it is redirected again and again");
  asked->is_asking = !to.is_for_good;
  if (to.is_for_good) {
    slots_.move(to.slot, to.address);
    refresh();
  }
  route(asked, to.address);
}

// If all keys share one home node, a missing answer is a failure of the router too.
void RedisRouter::give_nothing(const AskedPtr& asked, const std::string& why) {
  asked->done(nullptr);
  if (!options_.home.empty()) fail(why);
}

void RedisRouter::close() {
  if (std::exchange(is_closed_, true)) return;
  const auto self = shared_from_this();
  for (auto& [address, node] : nodes_) {
    if (node.connection != nullptr) std::exchange(node.connection, nullptr)->close();
    for (const AskedPtr& asked : std::exchange(node.waiting, {}))
      asked->done(nullptr);
  }
}

void RedisRouter::fail(const std::string& why) {
  if (is_closed_) return;
  const auto self = shared_from_this();
  close();
  events_.failed(why);
}

}  // namespace quire
