#include "kernels/gpu/form_names.h"

#include "kernels/gpu/pack/strips.h"

namespace quire::gpu {

std::string_view form_name(DType type) {
  switch (form_type(type)) {
#define QUIRE_NAME(form) \
  case DType::k##form: return #form;
    QUIRE_STRIP_FORMS(QUIRE_NAME)
#undef QUIRE_NAME
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8: return "F8";
    default: return {};
  }
}

}  // namespace quire::gpu
