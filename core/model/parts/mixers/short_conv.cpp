#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

std::span<const RoleName> ShortConv::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kConvIn, {"shortconv.in_proj", "conv.in_proj"}},
      {Role::kConv, {"shortconv.conv", "conv.conv"}},
      {Role::kConvOut, {"shortconv.out_proj", "conv.out_proj"}},
  };
  return kRoles;
}

void ShortConv::list_weights(const LayerSpec& layer, WeightList& list) const {
  const RecurrentSpec& net = layer.recurrent;
  list.alone(Role::kConvIn, 3 * net.inner_size, list.hidden_size());
  list.convolution(Role::kConv, net.inner_size, net.taps);
  list.alone(Role::kConvOut, list.hidden_size(), net.inner_size);
}

void ShortConv::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  widths.fit(kMixed, 3 * layer.recurrent.inner_size);
}

StateSize ShortConv::state(const LayerSpec& layer) const {
  return {.conv = conv_state_floats(layer.recurrent.inner_size, layer.recurrent.taps)};
}

// in_proj gives b, c and x: out_proj(c * conv(b * x)).
void ShortConv::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const RecurrentSpec& net = layer.spec.recurrent;
  const std::int64_t width = net.inner_size;
  const MatrixView all = layer.room(kMixed, out.rows, 3 * width);
  const MatrixView x = columns(all, 2 * width, width);
  layer.multiply(Role::kConvIn, in, all, false);
  layer.recurrent().short_conv(layer.slice.attention, layer.state(false),
                               {.taps = net.taps, .weights = layer.vector(Role::kConv)}, x, columns(all, 0, width),
                               columns(all, width, width), x);
  layer.multiply(Role::kConvOut, x, out, accumulate);
}

}  // namespace quire
