// The parts of all kinds: the only place that lists them. Immutable; any thread.
#pragma once

#include <span>

#include "core/model/parts/part.h"

namespace quire {

const Part& mixer_part(const LayerSpec& layer);
const Part& feed_forward_part(const LayerSpec& layer);
// In the order of Mixer.
std::span<const Part* const> mixer_parts();
// In the order of FeedForwardSpec::Kind.
std::span<const Part* const> feed_forward_parts();

}  // namespace quire
