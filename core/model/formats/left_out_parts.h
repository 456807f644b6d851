// Names of the parts of a model's files that the text model does not compute. Constants; any thread.
#pragma once

namespace quire {

inline constexpr const char* kVisionPart = "a vision tower";
inline constexpr const char* kAudioPart = "an audio tower";

}  // namespace quire
