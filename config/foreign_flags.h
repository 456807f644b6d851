// Flags of llama-server and vLLM that Quire does not have, each with the setting that takes its place. Immutable; any
// thread.
#pragma once

#include <span>
#include <string_view>

namespace quire {

struct ForeignFlag {
  std::string_view name;    // "--n-gpu-layers"
  std::string_view advice;  // completes "'--n-gpu-layers': "
};

std::span<const ForeignFlag> foreign_flags();
// Empty where `name` is in no list.
std::string_view foreign_flag_advice(std::string_view name);

}  // namespace quire
