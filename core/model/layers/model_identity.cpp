#include "core/model/layers/model_identity.h"

#include <fmt/format.h>

#include <random>
#include <type_traits>
#include <utility>

#include "core/model/formats/files/known_contents.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

namespace {

// Increased when the meaning of a field changes.
constexpr int kIdentityVersion = 1;

ContentHash hash_text(const std::string& text) {
  return hash_content(std::as_bytes(std::span(text)));
}

std::string shown(const ModelContent& content) {
  return fmt::format("{}, {}", content.files, content.options);
}

void add_rope(std::string& text, const RopeConfig& rope) {
  text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(rope.style), rope.rotary_dim, rope.base,
                      static_cast<int>(rope.scaling), rope.factor, rope.original_context, rope.low_freq_factor,
                      rope.high_freq_factor, rope.beta_fast, rope.beta_slow, rope.truncate, rope.attention_factor);
  for (const float divisor : rope.frequency_divisors)
    text += fmt::format(" {}", divisor);
  text += '\n';
}

std::string options_of(const ModelSpec& spec) {
  std::string ropes;
  for (const RopeConfig& rope : spec.ropes)
    add_rope(ropes, rope);
  return fmt::format("RoPE {}, next tokens {}", hex_digits(hash_text(ropes)), spec.next_tokens.has_value());
}

ContentHash hash_of(const MappedFile& file, KnownContents& known, const std::stop_token& stop) {
  if (const auto found = known.find(file.stamp())) return *found;
  const bool is_settled = settle(file.path(), file.stamp(), stamping_clock());
  const ContentHash hash = hash_content(file.bytes(), stop);
  if (is_settled && !stop.stop_requested() && stamp_of(file.path()) == file.stamp()) known.remember(file.stamp(), hash);
  return hash;
}

ModelContent read_content(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                          const std::stop_token& stop) {
  KnownContents known(folder);
  std::string files = checkpoint.texts;
  for (const MappedFile* file : checkpoint.mappings) {
    if (stop.stop_requested()) return {};
    files += hex_digits(hash_of(*file, known, stop)) + '\n';
  }
  return {hex_digits(hash_text(files)), options_of(checkpoint.spec)};
}

}  // namespace

std::string ModelIdentity::text() const {
  return fmt::format("Quire {}, identity {}\nmodel {}\ndraft model {}\n{}arithmetic {}\nblocks of {}, type {}{}\n",
                     QUIRE_VERSION, kIdentityVersion, shown(model), shown(draft_model),
                     encoder.empty() ? "" : fmt::format("encoder {}\n", encoder), arithmetic, block_size,
                     static_cast<int>(cache_type), has_window_parts ? ", windows apart" : "");
}

ContentHash ModelIdentity::key() const {
  return hash_text(text());
}

std::string packed_identity(const ModelContent& model, std::string_view packing) {
  return fmt::format("Quire {}, identity {}\nmodel {}\npacking {}\n", QUIRE_VERSION, kIdentityVersion, shown(model),
                     packing);
}

ModelContent private_content() {
  std::random_device device;
  return {fmt::format("{:08x}{:08x}{:08x}{:08x} of one process", device(), device(), device(), device()), ""};
}

ContentHash content_of(const std::filesystem::path& path, const std::filesystem::path& folder) {
  KnownContents known(folder);
  return hash_of(MappedFile(path), known, {});
}

ContentReading::ContentReading(std::shared_ptr<const LoadedModel> model, std::filesystem::path folder)
    : model_(std::move(model)), work_([this, folder = std::move(folder)](const std::stop_token& stop) {
        return read_content(model_->checkpoint(), folder, stop);
      }) {}

ModelContent ContentReading::wait(const std::function<void()>& poll) {
  ModelContent content = work_.wait(poll);
  for (const MappedFile* file : model_->checkpoint().mappings)
    file->release(file->bytes());
  return content;
}

}  // namespace quire
