// kv_transfer_params, as vLLM's clients and the routers in front of it send them: a replica computes a prompt and
// answers where its blocks are; another takes them over with the same parameters. Pure functions; any thread.
#pragma once

#include <memory>

#include "core/base/shared_prefix.h"
#include "server/api/common/field_reader.h"

namespace quire {

// Errors stay in the reader. Members of other engines' transfers are taken and not used.
PrefixTransfer read_prefix_transfer(FieldReader& reader);

// Fields for the replica that decodes; null: nothing is known of the blocks.
Json prefix_transfer_json(const std::shared_ptr<const SharedPrefix>& published);

}  // namespace quire
