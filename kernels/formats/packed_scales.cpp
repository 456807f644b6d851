#include "kernels/formats/packed_scales.h"

#include <cstring>

namespace quire {
namespace {

void put_scale_u16(std::byte* at, std::size_t column, std::uint16_t value) {
  std::memcpy(at + 2 * column, &value, 2);
}

void put_scale_f32(std::byte* at, std::size_t column, float value) {
  std::memcpy(at + 4 * column, &value, 4);
}

}  // namespace

void pack_scale_header(ScaleForm form, const QuantGroup& group, std::size_t column, std::byte* header) {
  switch (form) {
    case ScaleForm::kPair8:
    case ScaleForm::kNibbleHalves: put_scale_u16(header + 32, column, group.minimum_f16); [[fallthrough]];
    case ScaleForm::kHeaderHalf:
    case ScaleForm::kSigned:
    case ScaleForm::kSignedHalves: return put_scale_u16(header, column, group.scale_f16);
    case ScaleForm::kFloatZero: header[64 + column] = static_cast<std::byte>(group.sub_minimum); [[fallthrough]];
    case ScaleForm::kFloat8: return put_scale_f32(header, column, group.scale_f32);
    default: return;
  }
}

void pack_scale_entry(ScaleForm form, const QuantGroup& group, std::size_t column, std::byte* entry) {
  switch (form) {
    case ScaleForm::kHalfMinimum: put_scale_u16(entry + 32, column, group.minimum_f16); [[fallthrough]];
    case ScaleForm::kHalf: return put_scale_u16(entry, column, group.scale_f16);
    case ScaleForm::kPair8: entry[16 + column] = static_cast<std::byte>(group.sub_minimum); break;
    case ScaleForm::kSignedHalves:
    case ScaleForm::kNibbleHalves:
    case ScaleForm::kUe4m3Halves: entry[16 + column] = static_cast<std::byte>(group.sub_scale[1]); break;
    case ScaleForm::kSigned:
    case ScaleForm::kPower: break;
    default: return;
  }
  entry[column] = static_cast<std::byte>(group.sub_scale[0]);
}

}  // namespace quire
