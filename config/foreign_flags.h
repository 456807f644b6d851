// Flags of other servers. Flags of llama-server and vLLM that Quire lacks are left out with a note if they have no
// effect here, renamed if Quire has another name for them, and refused with advice otherwise. --speculative-config is
// vLLM's object for drafting, converted to the keys of `speculation`. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct Config;

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

inline constexpr std::string_view kSpeculativeFlag = "--speculative-config";

// Throws StartupError, one line that begins with the flag: no JSON object, or an unknown key or method.
void set_speculative_config(Config& config, const std::string& json);

}  // namespace quire
