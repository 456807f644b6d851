// SeeingServer: a TestServer whose fake model sees: each picture becomes as many rows as its width has tens, between
// two control tokens. One thread at a time.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/content/picture.h"
#include "core/content/prepared_media.h"
#include "server/media/media_sight.h"
#include "tests/server/test_server.h"

namespace quire::test {

// Pictures that the fake model prepared, by their sizes.
struct Seen {
  std::mutex mutex;
  std::vector<std::pair<std::int32_t, PictureSettings>> pictures;

  std::size_t count() {
    const std::lock_guard lock(mutex);
    return pictures.size();
  }
};

// No engine encodes it.
struct FakePiece final : PreparedMedia {
  std::int64_t num_rows() const override { return 0; }
  std::int64_t row_width() const override { return 1; }
  std::size_t num_bytes() const override { return 1000; }
  std::unique_ptr<EncoderRun> start() const override { return nullptr; }
};

inline std::shared_ptr<const MediaSight> sight_for(const std::shared_ptr<Seen>& seen) {
  auto sight = std::make_shared<MediaSight>();
  sight->name = "fake";
  sight->layout = [](std::int32_t width, std::int32_t, const PictureSettings& settings) {
    const std::int64_t rows = settings.detail == PictureSettings::Detail::kLow ? 1 : width / 10;
    return MediaLayout{{{"<|im_start|>"}, {"", rows, static_cast<std::int32_t>(rows), 1, rows}, {"<|im_end|>"}}, rows};
  };
  sight->prepare = [seen](const Picture& picture, const PictureSettings& settings) {
    const std::lock_guard lock(seen->mutex);
    seen->pictures.emplace_back(picture.width, settings);
    return std::make_shared<const FakePiece>();
  };
  return sight;
}

struct SeeingServer {
  explicit SeeingServer(const ServerOptions& options = test_options())
      : server(says("ok"), options, [this](ServedModel& model) { model.sight = sight_for(seen); }),
        client(server.port()) {}

  std::shared_ptr<const Request> request() { return server.engine().last_request(); }
  // The prompt as text, a row of a picture as '#'.
  std::string prompt() {
    std::string text;
    const ByteTokenizer tokenizer;
    for (const TokenId token : request()->prompt) {
      if (token.value < 0) {
        text += '#';
      } else {
        text += tokenizer.token_bytes(token);
      }
    }
    return text;
  }

  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  TestServer server;
  HttpClient client;
};

}  // namespace quire::test
