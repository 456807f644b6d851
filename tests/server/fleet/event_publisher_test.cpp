#include "server/fleet/event_publisher.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <zmq.hpp>

#include "core/base/result.h"
#include "core/kv/cache_salt.h"
#include "core/kv/kv_cache.h"

using namespace quire;

namespace {

using Packed = nlohmann::json;
constexpr std::chrono::seconds kLongestWait{60};

// Rebuilds a pool's content from the published events, like a router.
class Subscriber {
 public:
  explicit Subscriber(const std::string& endpoint) {
    socket_.set(zmq::sockopt::subscribe, "");
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::chrono::milliseconds(kLongestWait).count()));
    socket_.connect(endpoint);
  }

  // Receives the next message and returns its number; nothing if none has arrived and it does not wait.
  std::optional<std::uint64_t> receive(bool waits, zmq::message_t& payload) {
    zmq::message_t topic;
    zmq::message_t number;
    const bool has_come = socket_.recv(topic, waits ? zmq::recv_flags::none : zmq::recv_flags::dontwait).has_value();
    if (waits) REQUIRE(has_come);
    if (!has_come) return std::nullopt;
    REQUIRE(socket_.recv(number));
    REQUIRE(socket_.recv(payload));
    CHECK(topic.to_string() == "kv@here");
    CHECK(number.size() == 8);
    return number_of(number);
  }

  static std::uint64_t number_of(const zmq::message_t& frame) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < frame.size(); ++i)
      number = number << 8 | frame.data<unsigned char>()[i];
    return number;
  }

  // Applies a batch in vLLM's form: [time, events, rank], each event an array that begins with its name.
  void apply(const zmq::message_t& payload) {
    const Packed batch =
        Packed::from_msgpack(payload.data<std::uint8_t>(), payload.data<std::uint8_t>() + payload.size());
    REQUIRE(batch.size() == 3);
    CHECK(batch[0].is_number_float());
    CHECK(batch[2] == 0);
    for (const Packed& event : batch[1])
      apply(event);
  }

  void apply(const Packed& event) {
    if (event[0] == "AllBlocksCleared") {
      CHECK(event.size() == 1);
      parents.clear();
    } else if (event[0] == "BlockRemoved") {
      CHECK(event[2] == "GPU");
      for (const Packed& hash : event[1])
        CHECK(parents.erase(hash.get<std::uint64_t>()) == 1);
    } else {
      REQUIRE(event[0] == "BlockStored");
      REQUIRE(event.size() == 7);
      CHECK(event[3].size() == event[1].size() * event[4].get<std::size_t>());
      CHECK((event[5].is_null() && event[6] == "GPU"));
      Packed parent = event[2];
      if (!parent.is_null()) CHECK(parents.contains(parent.get<std::uint64_t>()));
      for (const Packed& hash : event[1]) {
        parents[hash.get<std::uint64_t>()] = parent;
        parent = hash;
      }
      num_tokens += event[3].size();
    }
  }

  std::map<std::uint64_t, Packed> parents;  // parent of each stored block
  std::size_t num_tokens = 0;

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::sub};
};

CacheEventOptions local_options() {
  return {.endpoint = "tcp://127.0.0.1:*", .replay_endpoint = "tcp://127.0.0.1:*", .topic = "kv@here"};
}

std::map<std::uint64_t, bool> hashes_in(const KvCache& kv) {
  std::map<std::uint64_t, bool> hashes;
  for (std::int32_t i = 0; i < kv.pool().num_blocks(); ++i) {
    const PrefixNode node = kv.index().node_of(BlockId{i});
    if (node != kNoNode && kv.index().is_full(node)) hashes[kv.index().key_of(node).low] = true;
  }
  return hashes;
}

// Computes and releases a prompt of random length with one of a few beginnings.
void serve(KvCache& kv, std::uint32_t& state) {
  const auto random = [&state](std::uint32_t bound) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8) % bound;
  };
  std::vector<TokenId> tokens(8 + random(60), TokenId{static_cast<int>(random(6))});
  for (std::size_t i = 4 * (1 + random(10)); i < tokens.size(); ++i)
    tokens[i] = TokenId{static_cast<int>(random(50))};
  const auto count = static_cast<std::int64_t>(tokens.size());
  BlockTable table;
  std::vector<BlockCopy> copies;
  kv.open(table, "");
  REQUIRE(kv.admit(table, kv.match(table, tokens, count - 1), count, copies));
  kv.commit(table, tokens, count);
  kv.release(table, tokens, count);
  kv.close(table);
}

}  // namespace

TEST_CASE("blocks of an adapter say its name, others none, and what is named again too") {
  struct Kept final : CacheEventSink {
    bool publish(CacheEvents more) noexcept override {
      std::ranges::move(more, std::back_inserter(events));
      return true;
    }
    bool has_room() const noexcept override { return true; }
    CacheEvents events;
  };
  const auto adapters = std::make_shared<AdapterPool>(1 << 20, [](const std::filesystem::path& path) {
    return std::make_shared<const Adapter>(std::vector<Adapter::Layer>{}, Adapter::Group{}, path.string() + "-weights");
  });
  adapters->add("polite", "polite-file");
  const auto kept = std::make_shared<Kept>();
  NamedAdapterEvents sink(kept, adapters);
  KvCache kv(40, 4, true);
  kv.mutable_index().log().set_sink(&sink);
  const std::string own_salt("own\0salt", 8);
  const std::string polite = "polite-file-weights";
  const std::string gone = "gone-weights";
  const std::string key = "key";
  int first = 1;
  for (const std::string& salt : {std::string("plain"), cache_salt(own_salt, &key, nullptr),
                                  cache_salt("", &key, &polite), cache_salt(own_salt, nullptr, &gone)}) {
    std::vector<TokenId> tokens(12, TokenId{first++});
    BlockTable table;
    std::vector<BlockCopy> copies;
    kv.open(table, salt);
    REQUIRE(kv.admit(table, kv.match(table, tokens, 11), 12, copies));
    kv.commit(table, tokens, 12);
    kv.release(table, tokens, 12);
    kv.close(table);
  }
  const auto named = [&] {
    std::map<int, std::string> names;  // by first token
    for (const CacheEvent& event : kept->events) {
      if (event.kind == CacheEvent::Kind::kStored) names[event.tokens.at(0).value] = event.adapter;
    }
    return names;
  };
  const std::map<int, std::string> expected{{1, ""}, {2, ""}, {3, "polite"}, {4, "gone-weights"}};
  kv.mutable_index().flush_events();
  CHECK(named() == expected);
  kept->events.clear();
  kv.mutable_index().log().lose();
  kv.mutable_index().flush_events();
  CHECK(kept->events.at(0).kind == CacheEvent::Kind::kCleared);
  CHECK(named() == expected);
}

TEST_CASE("a subscriber rebuilds what the pool holds, through evictions, from what was sent and sent again") {
  const auto publisher = std::make_shared<CacheEventPublisher>(local_options());
  ModelEvents sink(publisher, "kv@here");
  KvCache kv(40, 4, true);
  kv.mutable_index().log().set_sink(&sink);
  std::uint32_t state = 1;
  const auto serve_some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      serve(kv, state);
      kv.mutable_index().flush_events();
    }
  };
  serve_some(300);
  Subscriber subscriber(publisher->endpoint());
  zmq::message_t first;
  std::optional<std::uint64_t> number;
  for (; !number; number = subscriber.receive(false, first))
    serve_some(1);
  // Requests the events published before it subscribed.
  zmq::context_t context;
  zmq::socket_t request(context, zmq::socket_type::dealer);
  request.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::chrono::milliseconds(kLongestWait).count()));
  request.connect(publisher->replay_endpoint());
  request.send(zmq::const_buffer{}, zmq::send_flags::sndmore);
  request.send(zmq::buffer(std::string(8, '\0')), zmq::send_flags::none);
  std::uint64_t expected = 0;
  for (bool has_more = true; has_more;) {
    zmq::message_t delimiter;
    zmq::message_t again;
    zmq::message_t payload;
    REQUIRE(request.recv(delimiter));
    CHECK(delimiter.size() == 0);
    REQUIRE(request.recv(again));
    REQUIRE(request.recv(payload));
    has_more = payload.size() > 0;
    CHECK(Subscriber::number_of(again) == (has_more ? expected : ~std::uint64_t{0}));
    if (has_more && expected++ < *number) subscriber.apply(payload);
  }
  CHECK(expected >= *number);
  subscriber.apply(first);
  serve_some(300);
  const std::uint64_t last = publisher->num_taken() - 1;
  while (*number < last) {
    zmq::message_t payload;
    const auto next = subscriber.receive(true, payload);
    CHECK(*next == *number + 1);
    number = next;
    subscriber.apply(payload);
  }
  const std::map<std::uint64_t, bool> there = hashes_in(kv);
  std::uint64_t digest = 0;
  for (const auto& [hash, parent] : subscriber.parents) {
    digest ^= hash;
    CHECK(there.contains(hash));
  }
  CHECK(subscriber.parents.size() == there.size());
  CHECK(there.size() == kv.index().log().num_blocks());
  CHECK(digest == kv.index().log().digest());
  CHECK(publisher->num_lost() == 0);
}

TEST_CASE("what finds no room is lost, counted, and missing in the numbers") {
  CacheEventOptions options = local_options();
  options.max_queued = 0;
  CacheEventPublisher publisher(options);
  CHECK_FALSE(publisher.has_room());
  CHECK_FALSE(publisher.publish("t", {{.kind = CacheEvent::Kind::kCleared}}));
  CHECK_FALSE(publisher.publish("t", {{.kind = CacheEvent::Kind::kCleared}}));
  CHECK(publisher.num_lost() == 2);
  CHECK(publisher.num_taken() == 2);
}

TEST_CASE("what was lost is followed by all that is there") {
  struct Sink final : CacheEventSink {
    bool publish(CacheEvents events) noexcept override {
      if (has_space) published = std::move(events);
      return has_space;
    }
    bool has_room() const noexcept override { return has_space; }
    bool has_space = true;
    CacheEvents published;
  } sink;
  KvCache kv(40, 4, true);
  std::uint32_t state = 5;
  serve(kv, state);
  kv.mutable_index().log().set_sink(&sink);
  for (int i = 0; i < 100; ++i) {
    sink.has_space = i % 10 < 5;
    sink.published.clear();
    serve(kv, state);
    kv.mutable_index().flush_events();
    if (i % 10 != 0) continue;
    CHECK(sink.published.front().kind == CacheEvent::Kind::kCleared);
    std::size_t num_stored = 0;
    for (const CacheEvent& event : sink.published)
      num_stored += event.kind == CacheEvent::Kind::kStored ? event.hashes.size() : 0;
    CHECK(num_stored == hashes_in(kv).size());
  }
}

TEST_CASE("an endpoint that cannot be used says so") {
  for (const char* bad : {"tcp://nothing", "5557", "what://a"}) {
    CacheEventOptions options;
    options.endpoint = bad;
    CHECK_THROWS_AS(CacheEventPublisher(options), StartupError);
    CHECK_THROWS_AS(CacheEventPublisher::check(options), StartupError);
  }
  CacheEventOptions options = local_options();
  const CacheEventPublisher first(options);
  options.replay_endpoint = first.replay_endpoint();
  CHECK_THROWS_AS(CacheEventPublisher(options), StartupError);
  CHECK_NOTHROW(CacheEventPublisher::check(options));  // a daemon that is to be reloaded has it
  options.replay_endpoint = "what://a";
  CHECK_THROWS_AS(CacheEventPublisher::check(options), StartupError);
}
