// The scales of packed weights, written in the form that packed_format(type) names: shared by the CPU's panels and the
// GPU's strips. Any thread. Invariant: scales are the source's own bits; nothing is rounded.
#pragma once

#include <cstddef>

#include "kernels/formats/packed_format.h"
#include "kernels/formats/quant_blocks.h"

namespace quire {

// Pack the scales of one column of sixteen: the header is shared by several blocks, an entry belongs to one.
void pack_scale_header(ScaleForm form, const QuantGroup& group, std::size_t column, std::byte* header);
void pack_scale_entry(ScaleForm form, const QuantGroup& group, std::size_t column, std::byte* entry);

}  // namespace quire
