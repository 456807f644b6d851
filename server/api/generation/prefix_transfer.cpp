#include "server/api/generation/generation_fields.h"

#include <cstdint>
#include <string>
#include <utility>

#include "server/api/fields/generation.h"

namespace quire {

namespace {

constexpr std::size_t kMaxBlockIds = 1 << 20;

bool is_key(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

PrefixTransfer read_prefix_transfer(FieldReader& reader) {
  PrefixTransfer transfer;
  const Json* params = reader.object(fields::generation::kKvTransferParams);
  if (params == nullptr) return transfer;
  FieldReader inner(*params, "kv_transfer_params.");
  transfer.publishes = inner.boolean("do_remote_decode", false);
  const bool fetches = inner.boolean("do_remote_prefill", false);
  if (transfer.publishes && fetches)
    inner.fail("do_remote_prefill", "'kv_transfer_params' asks for a prefill and for a decode elsewhere at once");
  SharedPrefix prefix;
  prefix.fingerprint = inner.string("remote_engine_id").value_or("");
  prefix.last_block = inner.string("remote_last_block").value_or("");
  prefix.num_tokens = inner.integer("remote_num_tokens", 0, kMaxInt32).value_or(0);
  inner.string("remote_host");
  inner.integer("remote_port", 0, 65535);
  if (const Json* blocks = inner.array("remote_block_ids"); blocks != nullptr && blocks->size() > kMaxBlockIds)
    inner.fail("remote_block_ids", "'kv_transfer_params.remote_block_ids' is too long");
  if (inner.error()) {
    reader.fail(fields::generation::kKvTransferParams, inner.error()->message, inner.error()->code);
    return {};
  }
  if (fetches && is_key(prefix.last_block) && prefix.num_tokens > 0) transfer.has = std::move(prefix);
  return transfer;
}

// Blocks are named by their indices: routers pass unknown members on unchanged, but round numbers above 2^53.
Json prefix_transfer_json(const std::shared_ptr<const SharedPrefix>& published) {
  const SharedPrefix prefix = published != nullptr ? *published : SharedPrefix{};
  Json blocks = Json::array();
  for (std::int32_t i = 0; i < prefix.num_blocks; ++i)
    blocks.push_back(i);
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  return Json{{"do_remote_prefill", true},
              {"do_remote_decode", false},
              {"remote_engine_id", text(prefix.fingerprint)},
              {"remote_block_ids", std::move(blocks)},
              {"remote_num_tokens", prefix.num_tokens},
              {"remote_last_block", text(prefix.last_block)},
              {"remote_host", nullptr},
              {"remote_port", nullptr}};
}

}  // namespace quire
