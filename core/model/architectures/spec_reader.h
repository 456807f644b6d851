// SpecReader: the source of a family's ModelSpec: metadata under GGUF's keys, and the list of tensors. One thread at a
// time. Invariant: a key of the architecture that nothing has read and that is not known to be without effect is
// refused: a model never computes something else in silence.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/model/architectures/model_spec.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// What messages call the layers that predict further tokens.
inline constexpr const char* kNextTokenLayers = "layers that predict further tokens (MTP)";

// The end of each refusal of a setting that is not known.
inline constexpr const char* kWayOutOfUnknownKeys =
    "where it is known to change nothing, model.ignore_unknown_keys: true serves the model without it";

class SpecReader {
 public:
  // Codes of expert_gating_func.
  static constexpr std::int64_t kSoftmaxGating = 1;
  static constexpr std::int64_t kSigmoidGating = 2;
  static constexpr std::int64_t kSoftmaxOfChosenGating = 3;

  // `architecture` is the keys' prefix. Both must outlive this.
  SpecReader(const GgufFile& file, TensorTable& tensors, std::string architecture, const SpecWishes& wishes);

  [[noreturn]] void fail(const std::string& what) const;
  const std::string& architecture() const { return architecture_; }

  // Keys without the architecture's prefix. A key that is there must be of its kind: a wrong kind is not an absent key.
  bool has(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;  // an array counts where all its values are equal
  std::int64_t required_integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::size_t num_texts(std::string_view key) const;  // of an array
  // The layer's own value where the key is an array, else the one for all.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t layer) const;
  std::optional<double> number(std::string_view key, std::int64_t layer) const;
  std::optional<bool> flag(std::string_view key, std::int64_t layer) const;
  bool is_array(std::string_view key) const;
  // The keys were made from another format's configuration, which lists the layers' kinds.
  bool is_translated() const { return has("translated"); }
  // Keys that have no prefix.
  std::optional<double> global_number(const std::string& key, std::int64_t layer) const;

  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  bool has_tensor(std::int64_t layer, std::string_view stem) const;  // "attn_q_norm.weight"
  std::vector<std::int64_t> shape_of(std::int64_t layer, std::string_view stem) const;
  // The rows or columns of a matrix or of each one in a stack of them; fails where it is neither.
  std::int64_t rows_of(std::int64_t layer, std::string_view stem) const;
  std::int64_t columns_of(std::int64_t layer, std::string_view stem) const;
  TensorTable& tensors() { return tensors_; }

  // The keys that all decoders share: sizes, rope, and layers of plain attention and feed-forwards, whose projections
  // are fused where the file has them fused. Families change what they have otherwise.
  ModelSpec read_plain(RopeStyle style);
  // Experts in the layers that have a router, as the common keys say and as wide as their tensors are. `gating`: the
  // code of the gate where the file has none.
  void read_experts(ModelSpec& spec, std::int64_t gating = kSoftmaxGating);
  // A layer slides where its index modulo `period` is below period - 1, or as an array says; others are full.
  // The window itself is attention.sliding_window, else `window`; zero: no layer slides.
  std::vector<bool> read_windows(ModelSpec& spec, std::int64_t period, bool array_counts = false,
                                 std::int64_t window = 0);
  // The same, and sliding layers have a rope of their own: that of local_rope().
  std::vector<bool> read_windows_with_rope(ModelSpec& spec, std::int64_t period, bool array_counts, double base);
  // The rope of sliding layers: plain, its base and width by the keys of their own, else `base` and the common width.
  RopeConfig local_rope(const ModelSpec& spec, double base) const;
  // Adds a rope and gives its index.
  static int add_rope(ModelSpec& spec, const RopeConfig& rope);
  // The number of layers beside the trunk that predict further tokens; their tensors are left out.
  void drop_next_token_layers(ModelSpec& spec);
  // Whether the file has one of them and it is wanted: then it is the last of the layers, until it is taken out of
  // them.
  bool keeps_next_token_layer() const;
  void take_next_token_layer(ModelSpec& spec) const;

  // `ignored`: keys, separated by spaces, that this architecture's files carry without effect.
  void refuse_unread(std::string_view ignored) const;

 private:
  const GgufValue* find(std::string_view key) const;  // marks it as read
  bool says_nothing(std::string_view name, std::string_view ignored) const;
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  void read_rope(ModelSpec& spec, RopeStyle style);
  void read_rope_sections(RopeConfig& rope, const std::string& architecture);
  void read_rope_factors(RopeConfig& rope, std::int64_t max_context);
  void read_rope_scaling(RopeConfig& rope, std::int64_t max_context);
  void read_layer(ModelSpec& spec, std::int64_t layer) const;

  const GgufFile& file_;
  TensorTable& tensors_;
  std::string architecture_;
  std::string prefix_;
  const SpecWishes wishes_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace quire
