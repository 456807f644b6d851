#include "server/session/shared_stream.h"

#include <ctime>
#include <random>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "server/api/common/encodings.h"

namespace quire {

SharedStream::SharedStream(ServerState& state, std::string name, const StreamOrigin& origin,
                           std::chrono::milliseconds window)
    : streams_(state.shared_streams.load()), name_(std::move(name)) {
  if (streams_ != nullptr) streams_->begin(name_, origin, window);
}

// If memory runs out, the store forgets the stream when its lease ends.
SharedStream::~SharedStream() {
  if (streams_ == nullptr) return;
  try {
    streams_->end(name_);
  } catch (const std::exception& failure) {
    log::error("stream {}: {}", name_, failure.what());
  }
}

std::string shared_name(const Call& call) {
  std::string text;
  for (const std::string* part : {&call.key_name, &call.path, &call.query, &call.request_id, &call.body})
    text += std::to_string(part->size()) + ':' + *part;
  return hex_digits(sha256(text));
}

std::shared_ptr<const StreamOrigin> new_origin(const ServerState& state) {
  if (state.shared_streams.load() == nullptr) return nullptr;
  std::random_device device;
  return std::make_shared<const StreamOrigin>(StreamOrigin{.seed = (std::uint64_t{device()} << 32) | device(),
                                                           .created = static_cast<std::int64_t>(std::time(nullptr)),
                                                           .id_tail = make_id(""),
                                                           .fingerprint = ""});
}

}  // namespace quire
