// A canary: a second version of a model that gets a share of its traffic. A request's position in the traffic is a
// function of its conversation, so that a conversation stays with one version, whose prefix cache knows it. Pure
// functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/api/common/json.h"

namespace quire {

// The name of a model's canary, under which it can be asked too.
std::string canary_name(std::string_view model);

// A number in [0, 1), the same for all requests of one conversation and key. A conversation is identified by its
// client's name for it (prompt_cache_key, session_id, user, safety_identifier, metadata.user_id), else by the beginning
// of its first text.
double place_in_traffic(const Json& body, std::string_view key_name);

}  // namespace quire
