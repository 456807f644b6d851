// Memory that runs out while a piece of media is encoded ends a request that waits for it; the engine and all others
// continue.
#include <catch2/catch.hpp>

#include "core/content/kept_media.h"
#include "tests/unit/engine/allocations.h"
#include "tests/unit/engine/media/made_media.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kRowWidth = 64;  // hidden size of the model

// A piece for which there is no memory, as there is none for anything else from then on.
class HugeMedia final : public PreparedMedia {
 public:
  std::int64_t num_rows() const override { return 2; }
  std::int64_t row_width() const override { return kRowWidth; }
  std::size_t num_bytes() const override { return 1; }
  std::unique_ptr<EncoderRun> start() const override { return std::make_unique<Run>(); }

 private:
  struct Run final : EncoderRun {
    std::int64_t work_left() const override { return 1; }
    void advance(std::int64_t /*work*/, Backend& /*backend*/) override {
      fail_allocations(true);
      throw std::bad_alloc();
    }
    std::size_t bytes() const override { return 0; }
    std::span<const float> rows() const override { return {}; }
  };
};

// Takes no memory in send(); at a request's end there is memory again.
class EndSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    if (!event.finish) return;
    fail_allocations(false);
    ++num_ends;
    error = event.finish->error;
  }
  int num_ends = 0;
  SharedError error;
};

struct ScarceScene {
  explicit ScarceScene(const std::filesystem::path& path)
      : encoder(create_backend({.device = "cpu", .cpu = {.isa = "auto", .threads = 1, .pin = false}})),
        served(path, 64, options()) {}
  EngineOptions options() const {
    EngineOptions options;
    options.encoder = encoder.get();
    return options;
  }
  std::shared_ptr<EndSink> submit(Request request) {
    request.id = std::to_string(++num_submitted);
    request.cache_salt = std::string(40, 'a');
    const auto sink = std::make_shared<EndSink>();
    const auto submitted = std::make_shared<const Request>(std::move(request));
    REQUIRE(served.engine->queue().submit({submitted, sink}));
    return sink;
  }

  std::unique_ptr<Backend> encoder;
  ServedModel served;
  int num_submitted = 0;
};

Request request_with(std::uint64_t number, const std::shared_ptr<const PreparedMedia>& media) {
  Request request = request_of(made_tokens(5, 1, 500), 3);
  const std::int64_t begin = std::ssize(request.prompt);
  request.media.push_back({.begin = begin,
                           .num_rows = media->num_rows(),
                           .num_positions = media->num_rows(),
                           .key = {number, 1},
                           .media = media});
  for (std::int64_t row = 0; row < media->num_rows(); ++row)
    request.prompt.push_back(media_placeholder(row));
  request.prompt.push_back(TokenId{7});
  return request;
}

}  // namespace

TEST_CASE("memory that runs out at a piece of media ends what waits for it, and nothing else",
          "[engine][media][memory]") {
  QUIRE_REQUIRE_MATERIAL(path, kStories);
  ScarceScene scene(path);
  const auto huge = std::make_shared<const HugeMedia>();
  const auto good = std::make_shared<const MadeMedia>(std::vector<float>(2 * kRowWidth, 0.01F), kRowWidth);
  const auto first = scene.submit(request_with(1, huge));
  const auto second = scene.submit(request_with(1, huge));
  const auto text = scene.submit(request_of(made_tokens(9, 2, 500), 3));
  const auto picture = scene.submit(request_with(2, good));
  scene.served.run();
  CHECK(scene.served.engine->healthy());
  for (const auto& failed : {first, second}) {
    CHECK(failed->num_ends == 1);
    REQUIRE(failed->error != nullptr);
    CHECK(failed->error->code == "out_of_memory");
  }
  for (const auto& answered : {text, picture}) {
    CHECK(answered->num_ends == 1);
    CHECK(answered->error == nullptr);
  }
}

TEST_CASE("rows of media that memory refuses to keep leave no trace among those that are kept",
          "[engine][media][memory]") {
  const std::string salt(40, 'a');
  for (std::int64_t n = 0; n < 3; ++n) {
    KeptMedia<int> kept(2);
    kept.keep({salt, {1, 1}}, 1, 1);
    const MediaName name(salt, {2, 2});
    bool has_failed = false;
    fail_next_allocation(n);
    try {
      kept.keep(name, 2, 1);
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    forget_failure();
    const std::int64_t before = num_allocations();
    const bool is_kept = kept.find({salt, {2, 2}}) != nullptr;
    CHECK(num_allocations() == before);
    CHECK(is_kept != has_failed);
    for (std::uint64_t i = 3; i < 9; ++i)
      kept.keep({salt, {i, i}}, 3, 1);  // drops all older ones
    CHECK(kept.find({salt, {1, 1}}) == nullptr);
    CHECK(kept.find({salt, {8, 8}}) != nullptr);
  }
}
