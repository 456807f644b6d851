#include "server/fleet/redis_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>

#include "server/fleet/redis_link.h"
#include "tests/server/fleet/fake_redis.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

using Words = FakeRedis::Words;

// Two servers that act as a cluster: the first one has the slots below `border`; tests change the state.
struct FakeCluster {
  FakeCluster() {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].behave([this, i](const Words& words, const std::string& reply) { return answer(i, words, reply); });
    }
  }

  std::string answer(std::size_t node, const Words& words, const std::string& reply) {
    const std::lock_guard lock(mutex);
    const bool was_asking = std::exchange(is_asking[node], words[0] == "ASKING");
    if (is_silent[node]) return FakeRedis::kClose;
    if (words[0] == "CLUSTER") {
      const std::string text = fmt::format(
          "a 127.0.0.1:{}@1,host-a master - 0 0 1 connected 0-{}\nb :{}@1,,shard-id=9 myself,master - 0 0 2 connected "
          "{}-16383 [93->-c]\nc :0@0 slave,fail,noaddr a 0 0 1 disconnected\n",
          nodes[0].port(), border - 1, nodes[1].port(), border);
      return fmt::format("${}\r\n{}\r\n", text.size(), text);
    }
    if (words[0] != "GET" && words[0] != "SET") return reply;
    const std::uint16_t slot = redis_slot(words[1]);
    const std::size_t owner = slot < real_border ? 0 : 1;
    if (!refusal.empty()) return refusal;
    if (always_elsewhere) return fmt::format("-MOVED {} :{}\r\n", slot, nodes[1 - node].port());
    if (owner == node && moving.contains(words[1]))
      return fmt::format("-ASK {} 127.0.0.1:{}\r\n", slot, nodes[1 - node].port());
    if (owner == node || (was_asking && moving.contains(words[1]))) return reply;
    return fmt::format("-MOVED {} :{}\r\n", slot, nodes[owner].port());
  }

  void change(const std::function<void()>& how) {
    const std::lock_guard lock(mutex);
    how();
  }

  std::mutex mutex;                  // guards all below but the nodes
  std::uint16_t border = 8192;       // in the map that nodes report
  std::uint16_t real_border = 8192;  // in redirections
  std::set<std::string> moving;
  std::string refusal;
  bool always_elsewhere = false;
  std::array<bool, 2> is_silent{};
  std::array<bool, 2> is_asking{};
  std::array<FakeRedis, 2> nodes;
};

struct ClusterClient {
  explicit ClusterClient(const std::string& url, const std::string& home = "")
      : link({.url = url, .patience = 2s, .first_pause = 20ms, .longest_pause = 40ms},
             {.setting = "test",
              .thread = "test-net",
              .use = "it is used",
              .consequence = "it is not",
              .max_reply_bytes = 4096,
              .home = home},
             {.up = [] {}, .failed = [this] { ++num_failures; }}) {}

  template <class Condition>
  static void wait_for(Condition condition) {
    const auto late = std::chrono::steady_clock::now() + 60s;
    while (!condition()) {
      REQUIRE(std::chrono::steady_clock::now() < late);
      std::this_thread::yield();
    }
  }
  void wait_up() {
    wait_for([this] { return link.is_up(); });
  }
  // The reply's text or error, or "null".
  std::string ask(const Words& words) {
    std::mutex mutex;
    std::optional<std::string> answer;
    link.post([&, words] {
      link.call(words[1], redis_command(words), [&](const RespReply* reply) {
        const std::lock_guard lock(mutex);
        answer = reply == nullptr ? "null" : reply->text;
      });
    });
    wait_for([&] {
      const std::lock_guard lock(mutex);
      return answer.has_value();
    });
    const std::lock_guard lock(mutex);
    return *answer;
  }

  std::atomic<int> num_failures{0};
  RedisLink link;
};

// A key in the lower or upper half of the slots.
std::string key_in(bool upper, int number = 0) {
  for (int i = 0;; ++i) {
    std::string key = fmt::format("key-{}-{}", number, i);
    if ((redis_slot(key) >= 8192) == upper) return key;
  }
}

int num_asked(const FakeRedis& node, const std::string& command) {
  return static_cast<int>(
      std::ranges::count_if(node.commands(), [&](const Words& words) { return words[0] == command; }));
}

}  // namespace

TEST_CASE("a key's slot is that of the text in its first braces, by CRC16") {
  CHECK(redis_slot("123456789") == 0x31C3);
  CHECK(redis_slot("foo") == 12182);
  CHECK(redis_slot("") == 0);
  CHECK(redis_slot("{user1000}.following") == redis_slot("user1000"));
  CHECK(redis_slot("{quire:quotas}:replicas") == redis_slot("{quire:quotas}:alice:requests"));
  CHECK(redis_slot("foo{bar}{zap}") == redis_slot("bar"));
  CHECK(redis_slot("foo{{bar}}zap") == redis_slot("{bar"));
  CHECK(redis_slot("foo{}{bar}") != redis_slot("bar"));
  CHECK(redis_slot("foo{bar") != redis_slot("bar"));
}

TEST_CASE("a node says where a key is, for good or for once") {
  const auto moved = parse_redirection("MOVED 3999 10.0.0.1:6381");
  REQUIRE(moved);
  CHECK((moved->is_for_good && moved->slot == 3999 && moved->address == RedisAddress{"10.0.0.1", "6381"}));
  CHECK_FALSE(parse_redirection("ASK 1 ::1:7000")->is_for_good);
  CHECK(parse_redirection("ASK 1 ::1:7000")->address.host == "::1");
  CHECK(parse_redirection("MOVED 1 :7000")->address.host.empty());
  for (const char* bad : {"", "MOVED", "MOVED 1", "MOVED 16384 a:1", "MOVED -1 a:1", "MOVED 1 a", "MOVED 1 a:0",
                          "MOVED 1 a:b", "MOVED 1 a:70000", "ERR unknown", "MOVED x a:1"}) {
    INFO(bad);
    CHECK_FALSE(parse_redirection(bad));
  }
}

TEST_CASE("a map of slots is read from what a node says of all of them") {
  const RedisAddress asked{"seed", "1"};
  const std::string text =
      "a 10.0.0.1:1@2,a.example,shard-id=7 master - 0 0 1 connected 0-99 200\n"
      "b :3@4 myself,slave a 0 0 1 connected\nc [::]:x@1 master - 0 0 1 connected 300\n"
      "d 10.0.0.4:5@6,,x=y master - 0 0 2 connected 100-199 500-400 16384 9-x [77->-a]\nshort line\n";
  const auto map = RedisSlotMap::parse(text, asked, false);
  REQUIRE(map);
  CHECK(*map->find(0) == RedisAddress{"10.0.0.1", "1"});
  CHECK(*map->find(200) == RedisAddress{"10.0.0.1", "1"});
  CHECK(*map->find(199) == RedisAddress{"10.0.0.4", "5"});
  CHECK((map->find(300) == nullptr && map->find(450) == nullptr && map->find(16383) == nullptr));
  CHECK(map->nodes().size() == 3);
  CHECK(map->nodes()[1] == RedisAddress{"seed", "3"});
  CHECK(RedisSlotMap::parse(text, asked, true)->find(0)->host == "a.example");
  CHECK(RedisSlotMap::parse(text, asked, true)->find(150)->host == "10.0.0.4");
  for (const char* bad : {"", "+OK", "a 10.0.0.1:1@2 master - 0 0 1 connected\n", "ERR"})
    CHECK_FALSE(RedisSlotMap::parse(bad, asked, false));
}

TEST_CASE("each command goes to the node that has its key") {
  FakeCluster cluster;
  ClusterClient client(cluster.nodes[0].url());
  client.wait_up();
  for (const bool upper : {false, true}) {
    CHECK(client.ask({"SET", key_in(upper), "value"}) == "OK");
    CHECK(client.ask({"GET", key_in(upper)}) == "value");
    CHECK(num_asked(cluster.nodes[upper ? 1 : 0], "GET") == 1);
  }
  CHECK(client.num_failures == 0);
}

TEST_CASE("a slot that moved is followed, and the next command goes there at once") {
  FakeCluster cluster;
  ClusterClient client(cluster.nodes[0].url());
  client.wait_up();
  cluster.change([&] { cluster.real_border = 0; });  // the map is old
  CHECK(client.ask({"SET", key_in(false), "1"}) == "OK");
  const int before = num_asked(cluster.nodes[0], "GET");
  CHECK(client.ask({"SET", key_in(false, 1), "2"}) == "OK");
  cluster.change([&] { cluster.border = 1; });
  CHECK(client.ask({"GET", key_in(false)}) == "1");
  CHECK(num_asked(cluster.nodes[0], "GET") <= before + 1);
  CHECK(client.num_failures == 0);
}

TEST_CASE("a slot that is moving: the other node is asked for the one key, and for no other") {
  FakeCluster cluster;
  ClusterClient client(cluster.nodes[0].url());
  client.wait_up();
  const std::string key = key_in(false);
  cluster.change([&] { cluster.moving = {key}; });
  CHECK(client.ask({"SET", key, "there"}) == "OK");
  CHECK(cluster.nodes[1].values().contains(key));
  CHECK(client.ask({"SET", key_in(false, 1), "here"}) == "OK");
  CHECK(num_asked(cluster.nodes[1], "ASKING") == 1);
  CHECK(num_asked(cluster.nodes[1], "SET") == 1);
}

TEST_CASE("nodes that send each other's keys around are not followed for ever") {
  FakeCluster cluster;
  const std::string home = GENERATE("", "{home}");
  ClusterClient client(cluster.nodes[0].url(), home);
  client.wait_up();
  cluster.change([&] { cluster.always_elsewhere = true; });
  CHECK(client.ask({"GET", key_in(false)}) == "null");
  ClusterClient::wait_for([&] { return client.num_failures == (home.empty() ? 0 : 1); });
}

TEST_CASE("where one node dies the keys of the others are answered, and its own at once as not there") {
  FakeCluster cluster;
  ClusterClient client(cluster.nodes[0].url());
  client.wait_up();
  CHECK(client.ask({"SET", key_in(true), "1"}) == "OK");
  CHECK(client.ask({"SET", key_in(false), "2"}) == "OK");
  cluster.change([&] { cluster.is_silent[1] = true; });
  CHECK(client.ask({"GET", key_in(true)}) == "null");
  CHECK(client.ask({"GET", key_in(true)}) == "null");
  CHECK(client.ask({"GET", key_in(false)}) == "2");
  CHECK(client.link.is_up());
  CHECK(client.num_failures == 0);
  // Another node takes its slots over and the map says so.
  cluster.change([&] {
    cluster.border = 16384 - 1;
    cluster.real_border = 16384;
  });
  ClusterClient::wait_for([&] { return client.ask({"SET", key_in(true), "3"}) == "OK"; });
  CHECK(cluster.nodes[0].values().contains(key_in(true)));
  // The link fails with its last node.
  cluster.change([&] { cluster.is_silent[0] = true; });
  ClusterClient::wait_for([&] { return client.ask({"GET", key_in(false)}) == "null" && client.num_failures > 0; });
  CHECK_FALSE(client.link.is_up());
  cluster.change([&] { cluster.is_silent = {}; });
  client.wait_up();
}

TEST_CASE("whose keys all lie on one node fails with that node alone, and finds the cluster through any other") {
  FakeCluster cluster;
  const std::string home = key_in(true);
  ClusterClient client(cluster.nodes[0].url(), home);
  client.wait_up();
  CHECK(client.ask({"SET", home, "1"}) == "OK");
  CHECK(num_asked(cluster.nodes[0], "SET") == 0);
  cluster.change([&] { cluster.is_silent[1] = true; });
  CHECK(client.ask({"GET", home}) == "null");
  ClusterClient::wait_for([&] { return client.num_failures >= 2; });  // nor is it up while that node is not
  CHECK_FALSE(client.link.is_up());
  cluster.change([&] { cluster.is_silent[1] = false; });
  client.wait_up();
  // The server of the URL is not needed: its key is elsewhere, and the other nodes are known.
  cluster.change([&] { cluster.is_silent[0] = true; });
  CHECK(client.ask({"GET", home}) == "1");
  const int failures = client.num_failures;
  cluster.change([&] { cluster.is_silent[1] = true; });
  CHECK(client.ask({"GET", home}) == "null");
  ClusterClient::wait_for([&] { return client.num_failures > failures; });
  cluster.change([&] { cluster.is_silent[1] = false; });
  client.wait_up();
  CHECK(client.ask({"GET", home}) == "1");
}

TEST_CASE("a cluster that is down answers nothing, and is asked again later") {
  FakeCluster cluster;
  ClusterClient client(cluster.nodes[0].url());
  client.wait_up();
  cluster.change([&] { cluster.refusal = "-CLUSTERDOWN The cluster is down\r\n"; });
  CHECK(client.ask({"GET", key_in(false)}) == "null");
  cluster.change([&] { cluster.refusal.clear(); });
  ClusterClient::wait_for([&] { return client.ask({"SET", key_in(false), "1"}) == "OK"; });
  cluster.change([&] { cluster.refusal = "-ERR anything else\r\n"; });
  CHECK(client.ask({"GET", key_in(false)}) == "ERR anything else");
}

TEST_CASE("a server without a map is one alone, and so is one that refuses to show it") {
  FakeRedis redis(false, [](const Words& words, const std::string& reply) {
    return words[0] == "CLUSTER" ? "-ERR This instance has cluster support disabled\r\n" : reply;
  });
  ClusterClient client(redis.url("", "/3"), "{home}");
  client.wait_up();
  CHECK(client.ask({"SET", "a", "1"}) == "OK");
  CHECK(client.ask({"GET", "a"}) == "1");
}
