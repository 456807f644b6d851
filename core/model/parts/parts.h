// The parts of all kinds: the only place that lists them. Immutable; any thread.
#pragma once

#include <span>

#include "core/model/parts/model/model_part.h"
#include "core/model/parts/part.h"

namespace quire {

const Part& mixer_part(const LayerSpec& layer);
const Part& feed_forward_part(const LayerSpec& layer);
// Indexed by Mixer.
std::span<const Part* const> mixer_parts();
// Indexed by FeedForwardSpec::Kind.
std::span<const Part* const> feed_forward_parts();
// In the order of their weights in files.
std::span<const ModelPart* const> model_parts();

}  // namespace quire
