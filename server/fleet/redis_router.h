// RedisRouter: a server, or all nodes of a cluster, as one connection: each command goes to the node that has its key,
// and follows redirections. One thread at a time: its context's. Invariants: as for RedisConnection, `up` at most once,
// `failed` exactly once unless close() comes first, each `done` once. It fails with its only server, with the node that
// has the key `home`, and with the last node that answers. If another node fails, its commands get null at once until
// it, or the replica that replaced it, answers; the other nodes are asked for the current map whenever a command has no
// node.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/fleet/fleet_options.h"
#include "server/fleet/redis_cluster.h"
#include "server/fleet/redis_connection.h"

namespace quire {

class RedisRouter : public std::enable_shared_from_this<RedisRouter> {
 public:
  struct Options {
    const char* setting;  // begins messages
    RedisUrl url;
    boost::asio::ssl::context* tls;  // null: plain; must outlive this
    RedisServer server;
    std::size_t max_reply_bytes;
    std::string home;  // empty: keys lie anywhere
  };

  // seeds: asked in turn for the cluster's nodes, and replaced by these. They must outlive this.
  RedisRouter(boost::asio::io_context& context, const Options& options, std::vector<RedisAddress>& seeds,
              RedisConnection::Events events);
  void start();
  void close();
  void call(const std::string& key, RedisCommand command, RedisConnection::Done done);

 private:
  using Clock = RedisConnection::Clock;
  struct Asked {
    RedisCommand command;
    RedisConnection::Done done;
    std::uint16_t slot = 0;
    bool is_asking = false;  // the node does not have the slot yet
    int num_redirections = 0;
  };
  using AskedPtr = std::shared_ptr<Asked>;
  struct Node {
    std::shared_ptr<RedisConnection> connection;
    bool is_up = false;
    bool has_failed = false;        // and has not been up since
    std::vector<AskedPtr> waiting;  // commands that wait for the first connection
    Clock::time_point again_at{};
    std::chrono::milliseconds pause{0};
  };

  void connect(const RedisAddress& address);
  void note_node_up(const RedisAddress& address);
  void note_node_failed(const RedisAddress& address, const std::string& why);
  void drop(const RedisAddress& address, const std::string& why);
  void ask_for_map(RedisConnection& connection, const RedisAddress& address);
  void take_map(const RespReply* reply, const RedisAddress& address);
  void refresh();
  void become_up();
  void route(const AskedPtr& asked, RedisAddress address);
  void send(RedisConnection& connection, const AskedPtr& asked, const RedisAddress& address);
  void take_reply(const AskedPtr& asked, const RespReply* reply, const RedisAddress& address);
  void redirect(const AskedPtr& asked, RedisRedirection to, const RedisAddress& from);
  void give_nothing(const AskedPtr& asked, const std::string& why);
  bool is_home(const RedisAddress& address) const;
  void fail(const std::string& why);

  boost::asio::io_context& context_;
  const Options options_;
  std::vector<RedisAddress>& seeds_;
  const RedisConnection::Events events_;
  std::map<RedisAddress, Node> nodes_;
  RedisSlotMap slots_;  // empty unless the server is a cluster
  RedisAddress seed_;
  std::size_t num_seeds_tried_ = 0;
  bool knows_nodes_ = false;
  bool is_cluster_ = false;
  bool is_refreshing_ = false;
  Clock::time_point refreshed_at_{};
  bool is_up_ = false;
  bool is_closed_ = false;
};

}  // namespace quire
