// is_call_mark: whether a special token is written by models in their calls, reasoning or answers, so that a grammar
// of calls must let it pass. Any thread; pure.
#pragma once

#include <string_view>

namespace quire {

// token: its text. True where it is one of the marks of a known tool format, or a part of one.
bool is_call_mark(std::string_view token);

}  // namespace quire
