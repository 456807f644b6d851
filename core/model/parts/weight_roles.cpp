#include "core/model/parts/weight_roles.h"

#include <fmt/core.h>

#include <array>
#include <span>

#include "core/model/parts/mixers/recurrent_mixers.h"
#include "core/model/parts/model/next_tokens.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"

namespace quire {

namespace {

using RoleTable = std::array<RoleInfo, kNumWeightRoles>;

// Invariant: each role has one owner.
RoleTable all_roles() {
  RoleTable table{};
  const auto add = [&](std::span<const RoleName> roles) {
    for (const RoleName& row : roles) {
      RoleInfo& info = table.at(static_cast<std::size_t>(row.role));
      QUIRE_CHECK(info.gguf.empty(), "two parts own a role");
      info = row.names;
    }
  };
  for (const ModelPart* part : model_parts())
    add(part->roles());
  add(RecurrentMixer::shared_roles());
  for (const Part* part : mixer_parts())
    add(part->roles());
  for (const Part* part : feed_forward_parts())
    add(part->roles());
  for (const RoleInfo& info : table)
    QUIRE_CHECK(!info.gguf.empty(), "no part owns a role");
  return table;
}

}  // namespace

const RoleInfo& role_info(WeightRole role) {
  static const RoleTable kTable = all_roles();
  return kTable.at(static_cast<std::size_t>(role));
}

std::string gguf_name(WeightRole role, std::int64_t layer) {
  const RoleInfo& info = role_info(role);
  if (layer < 0) return fmt::format("{}{}", info.gguf, info.suffix);
  return fmt::format("blk.{}.{}{}", layer, info.gguf, info.suffix);
}

std::vector<WeightNeed> weight_needs(const ModelSpec& spec, std::int64_t layer) {
  WeightList list(spec.config.hidden_size);
  if (layer == spec.config.num_layers) NextTokens::list_block(list);
  for (const ModelPart* part : model_parts()) {
    if (layer < 0) {
      part->list_weights(spec, list);
    } else {
      part->list_layer(spec, spec.layer(layer), list);
    }
  }
  return list.take();
}

}  // namespace quire
