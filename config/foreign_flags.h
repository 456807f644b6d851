// Flags of llama-server and vLLM that Quire lacks: those without effect here are left out with a note, those with
// another name in Quire are renamed, and the others are refused with advice. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class ForeignUse { kIgnored, kRenamed, kRefused };
enum class ForeignValue { kNone, kOne, kSwitch };  // kSwitch: a value that may be left out, such as "on"

struct ForeignFlag {
  std::string_view name;  // "--n-gpu-layers"
  ForeignUse use = ForeignUse::kRefused;
  ForeignValue value = ForeignValue::kNone;  // how an ignored flag takes its value
  std::string_view text;                     // why it is ignored, Quire's flag, or what to use instead
};

std::span<const ForeignFlag> foreign_flags();

// The command line of `quire serve` without ignored flags and with renamed ones.
struct OwnWords {
  std::vector<std::string> words;
  std::vector<std::string> ignored;  // "-ngl: the whole model is on one device, which --device chooses"
  std::vector<std::string> refused;  // "option '--lora' is another server's: use ..."
};
OwnWords own_words(std::span<const std::string> words);

}  // namespace quire
