// Text from a file or a client, made fit for one line of a message or a log. Any thread; pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

// Control characters and bytes above ASCII as \xNN; no more than max_length bytes of the text are shown.
std::string printable(std::string_view text, std::size_t max_length = 80);

}  // namespace quire
