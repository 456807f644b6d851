// Prompts with media in an engine over a small trained model. Rows that are embeddings of tokens must give the same
// text as those tokens: the oracle needs no encoder.
#include <catch2/catch.hpp>
#include <cstring>

#include "core/model/formats/gguf/gguf.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/media/made_media.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kWidth = 64;  // hidden size of the model

struct EmbeddingTable {
  explicit EmbeddingTable(const std::filesystem::path& path) : file(GgufFile::open(path)) {
    const GgufTensor* const tensor = file->find_tensor("token_embd.weight");
    REQUIRE(tensor != nullptr);
    REQUIRE(tensor->type == DType::kF32);
    REQUIRE(tensor->shape[0] == kWidth);
    values.resize(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  }

  std::shared_ptr<const MadeMedia> of(const std::vector<TokenId>& tokens, std::int64_t work = 1) const {
    std::vector<float> rows;
    for (const TokenId token : tokens)
      rows.insert(rows.end(), values.begin() + token.value * kWidth, values.begin() + (token.value + 1) * kWidth);
    return std::make_shared<const MadeMedia>(std::move(rows), kWidth, work);
  }

  std::shared_ptr<const GgufFile> file;
  std::vector<float> values;
};

struct Shown {
  std::vector<TokenId> before;
  std::vector<TokenId> seen;  // tokens whose embeddings are the piece
  std::vector<TokenId> after;
};

Shown shown(int num_seen, int seed) {
  return {made_tokens(5, 1, 500), made_tokens(num_seen, seed, 500), made_tokens(9, 2, 500)};
}

Request plain(const Shown& parts, int max_tokens) {
  return request_of(joined(joined(parts.before, parts.seen), parts.after), max_tokens);
}

Request with_media(const Shown& parts, std::uint64_t number, const std::shared_ptr<const MadeMedia>& media,
                   int max_tokens) {
  Request request = request_of(parts.before, max_tokens);
  add_media(request, number, media);
  request.prompt = joined(request.prompt, parts.after);
  return request;
}

struct Seeing : ServedModel {
  Seeing(const std::filesystem::path& path, std::int64_t num_blocks, EngineOptions options = {})
      : ServedModel(path, num_blocks, with_encoder(options)) {}
  static EngineOptions& with_encoder(EngineOptions& options) {
    static const auto kEncoder = create_backend({.device = "cpu", .cpu = {.isa = "auto", .threads = 1, .pin = false}});
    options.encoder = kEncoder.get();
    return options;
  }
  ChoiceOutput answer(Request request) {
    const auto sink = submit(std::move(request));
    kEngineThread.assume();
    while (!sink->finished())  // the disk may have to be waited for
      engine->step(Clock::now());
    REQUIRE(sink->choices[0].finishes[0].error == nullptr);
    return sink->choices[0];
  }
};

bool same_logprobs(const ChoiceOutput& a, const ChoiceOutput& b) {
  return std::ranges::equal(a.logprobs, b.logprobs, [](const TokenLogprob& left, const TokenLogprob& right) {
    return left.token == right.token && left.logprob == right.logprob && left.top == right.top;
  });
}

}  // namespace

TEST_CASE("rows that are tokens' embeddings give what the tokens give, in chunks of any size", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = GENERATE(16, 24, 512);
  Seeing served(path, 64, options);
  const Shown parts = shown(GENERATE(1, 3, 16, 40), 11);
  Request wanted = plain(parts, 20);
  Request asked = with_media(parts, 1, table.of(parts.seen), 20);
  wanted.sampling.num_logprobs = asked.sampling.num_logprobs = 3;
  const ChoiceOutput expected = served.answer(std::move(wanted));
  const ChoiceOutput got = served.answer(std::move(asked));
  CHECK(got.tokens == expected.tokens);
  CHECK(same_logprobs(got, expected));
  CHECK(got.finishes[0].num_cached_tokens < 16);  // rows are not the tokens: nothing of them is shared
}

TEST_CASE("two pieces behind equal placeholders share no block, the same piece does", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  Seeing served(path, 64);
  const Shown first = shown(40, 11);
  const Shown second = shown(40, 12);
  const auto a = table.of(first.seen);
  const auto b = table.of(second.seen);
  const ChoiceOutput of_first = served.answer(with_media(first, 1, a, 20));
  const ChoiceOutput of_second = served.answer(with_media(second, 2, b, 20));
  CHECK(of_second.finishes[0].num_cached_tokens == 5);  // the tokens before the piece
  CHECK(of_first.tokens == served.answer(plain(first, 20)).tokens);
  CHECK(of_second.tokens == served.answer(plain(second, 20)).tokens);
  const ChoiceOutput again = served.answer(with_media(first, 1, a, 20));
  CHECK(again.tokens == of_first.tokens);
  CHECK(again.finishes[0].num_cached_tokens == 53);
  CHECK(a->num_started == 1);
  CHECK(b->num_started == 1);
}

TEST_CASE("crowded, preempted and forked sequences with media say what each says alone", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 32;
  options.media_bytes = GENERATE(0, 12'000, 1 << 20);
  const auto request = [&](int i) {
    const Shown parts = shown(10 + 7 * (i % 5), 20 + i % 7);
    Request made = with_media(parts, 100 + static_cast<std::uint64_t>(i % 7) * 10 + static_cast<std::uint64_t>(i % 5),
                              table.of(parts.seen, 1 + 1000 * i), 40);
    made.num_choices = i % 6 == 5 ? 3 : 1;
    made.key_name = std::to_string(i % 3);
    made.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    made.sampling.seed = static_cast<std::uint64_t>(i);
    return made;
  };
  std::vector<std::vector<ChoiceOutput>> alone;
  {
    Seeing single(path, 64);
    for (int i = 0; i < 24; ++i) {
      const auto sink = single.submit(request(i));
      single.run();
      alone.push_back(sink->choices);
    }
  }
  Seeing served(path, 24, options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 24; ++i)
    sinks.push_back(served.submit(request(i)));
  served.run();
  int num_preempted = 0;
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    INFO("request " << i);
    REQUIRE(sinks[i]->finished());
    for (std::size_t choice = 0; choice < alone[i].size(); ++choice) {
      CHECK(sinks[i]->choices[choice].tokens == alone[i][choice].tokens);
      num_preempted += sinks[i]->choices[choice].finishes[0].num_preemptions;
    }
  }
  CHECK(num_preempted > 0);
}

TEST_CASE("a sequence that awaits rows starts once another one has computed them", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 16;
  options.media_bytes = 0;  // rows are those of sequences alone
  Seeing served(path, 64, options);
  constexpr std::int64_t kLongWork = std::int64_t{1} << 62;  // many slices, however fast they are
  const auto two_pieces = [&](std::int64_t first_work, std::int64_t second_work) {
    const Shown parts = shown(40, 11);
    const std::vector<TokenId> seen = made_tokens(3, 12, 500);  // a single step computes it with all that follows
    Request request = request_of(parts.before, 3);
    add_media(request, 1, table.of(parts.seen, first_work));
    add_media(request, 2, table.of(seen, second_work));
    request.prompt = joined(request.prompt, parts.after);
    return request;
  };
  kEngineThread.assume();
  const auto first = served.submit(two_pieces(1, kLongWork));
  for (int i = 0; i < 8; ++i)  // the first piece is computed, the second one not encoded
    served.engine->step(Clock::now());
  REQUIRE(served.engine->stats().num_media_encoded == 1);
  const auto second = served.submit(two_pieces(kLongWork, 1));
  for (int i = 0; i < 2000 && !second->finished(); ++i)
    served.engine->step(Clock::now());
  REQUIRE(second->finished());
  CHECK(second->choices[0].tokens == first->choices[0].tokens);
}

TEST_CASE("a piece's blocks come back from host memory and, in another engine, from the disk", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  const TemporaryFolder folder;
  EngineOptions options;
  options.kv_cache.host_tier_bytes = GENERATE(0, 1 << 24);
  options.kv_cache.disk_tier_path = folder.path();
  options.kv_cache.disk_tier_bytes = 1 << 24;
  const Shown parts = shown(60, 11);
  const Shown others = shown(60, 12);
  const auto a = table.of(parts.seen);
  const auto b = table.of(others.seen);
  std::vector<TokenId> expected;
  {
    Seeing served(path, 12, options);
    expected = served.answer(with_media(parts, 1, a, 20)).tokens;
    for (int i = 0; i < 6; ++i)  // pushes it out of the pool
      served.answer(request_of(made_tokens(150, 90 + i, 500), 2));
    CHECK(served.answer(with_media(parts, 1, a, 20)).tokens == expected);
  }
  Seeing restarted(path, 12, options);
  restarted.answer(request_of(made_tokens(3, 5, 500), 1));
  const ChoiceOutput again = restarted.answer(with_media(parts, 1, a, 20));
  CHECK(again.tokens == expected);
  CHECK(again.finishes[0].num_cached_tokens >= 64);
  const ChoiceOutput other = restarted.answer(with_media(others, 2, b, 20));
  CHECK(other.finishes[0].num_cached_tokens < 16);
  CHECK(other.tokens == restarted.answer(plain(others, 20)).tokens);
}

TEST_CASE("rows that attend in both directions are not parted, whatever a step's budget", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  const auto answer = [&](std::int32_t budget, int others) {
    EngineOptions options;
    options.scheduler.max_num_batched_tokens = budget;
    Seeing served(path, 96, options);
    const Shown parts = shown(40, 11);
    Request request = request_of(parts.before, 12);
    add_media(request, 1, table.of(parts.seen), 0, true);
    request.prompt = joined(request.prompt, parts.after);
    request.sampling.num_logprobs = 2;
    std::vector<std::shared_ptr<KeepingSink>> beside;
    for (int i = 0; i < others; ++i)
      beside.push_back(served.submit(request_of(made_tokens(30 + i, i, 500), 20)));
    return served.answer(std::move(request));
  };
  const ChoiceOutput expected = answer(512, 0);
  for (const std::int32_t budget : {48, 50, 64}) {
    CHECK(same_logprobs(answer(budget, 0), expected));
    CHECK(same_logprobs(answer(budget, 6), expected));
  }
  Seeing causal(path, 64);
  Request one_way = plain(shown(40, 11), 12);
  one_way.sampling.num_logprobs = 2;
  const ChoiceOutput of_tokens = causal.answer(std::move(one_way));
  CHECK_FALSE(same_logprobs(of_tokens, expected));
}

TEST_CASE("a model without an encoder refuses media, and rows of another model's width", "[engine][media]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  const EmbeddingTable table(path);
  const Shown parts = shown(4, 11);
  EngineOptions blind;
  ServedModel served(path, 64, blind);
  const auto sink = served.submit(with_media(parts, 1, table.of(parts.seen), 4));
  served.run();
  REQUIRE(sink->choices[0].finishes.size() == 1);
  CHECK(sink->choices[0].finishes[0].error->code == "unsupported_media");
  Seeing seeing(path, 64);
  const auto wrong =
      seeing.submit(with_media(parts, 1, std::make_shared<const MadeMedia>(std::vector<float>(4 * 10, 0.0F), 10), 4));
  seeing.run();
  CHECK(wrong->choices[0].finishes[0].error->code == "media_misplaced");
}
