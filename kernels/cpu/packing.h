// The packed layout of weights: panels of 16 output columns, for quantised types first the scales, then the quants
// interleaved by groups of four input features (the order of VNNI) or, for types of four bits on levels that want it,
// by columns. Any thread. Invariant: scales and quants are the source's own bits; nothing is rounded.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace quire {

// Changes with every change of the layout: weights packed by one version mean nothing to another.
constexpr const char* packing_name(PanelForm form) {
  if (form == PanelForm::kNibblesByColumn) return "panels of 16, nibbles by column, version 1";
  return form == PanelForm::kSignedCodes ? "panels of 16, signed codes, version 1" : "panels of 16, version 1";
}

struct PanelLayout {
  std::size_t bytes = 0;          // size of a panel, a multiple of 64
  std::size_t quants_offset = 0;  // offset of the quants, for quantised types
};

PanelLayout panel_layout(DType type, std::int64_t cols);

// Packs output rows [16 * panel, 16 * panel + 16) of the source into `out`, which is zeroed; rows beyond the source's
// stay zeros.
void pack_panel(const WeightSource& source, std::int64_t panel, PanelForm form, std::byte* out);

inline std::int64_t num_panels(std::int64_t rows) {
  return (rows + kPanelCols - 1) / kPanelCols;
}

}  // namespace quire
