// Reads the text of a PTX module. Any thread. Throws PtxError, which names the line and the unknown word.
#pragma once

#include <string_view>

#include "tests/ptx/machine/program.h"

namespace quire::ptx {

Module read_module(std::string_view text);

}  // namespace quire::ptx
