// SpecReader: the source of a family's ModelSpec: metadata under GGUF's keys, and the list of tensors. One thread at a
// time. Invariant: a key of the architecture that was not read and is not known to be without effect is refused:
// results never change silently.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/parts/model_spec.h"

namespace quire {

// Name of the layers that predict further tokens, in messages.
inline constexpr const char* kNextTokenLayers = "layers that predict further tokens (MTP)";

// The end of each refusal of an unknown setting.
inline constexpr const char* kWayOutOfUnknownKeys =
    "where it is known to change nothing, model.ignore_unknown_keys: true serves the model without it";

class SpecReader {
 public:
  // Value of expert_gating_func.
  static constexpr std::int64_t kSoftmaxGating = 1;
  static constexpr std::int64_t kSigmoidGating = 2;
  static constexpr std::int64_t kSoftmaxOfChosenGating = 3;

  // `architecture` is the keys' prefix. Both must outlive this.
  SpecReader(const GgufFile& file, TensorTable& tensors, std::string architecture, const SpecWishes& wishes);

  [[noreturn]] void fail(const std::string& what) const;
  const std::string& architecture() const { return architecture_; }

  // Keys have no architecture prefix. A key of another kind than asked for is refused, not taken as absent.
  bool has(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;  // an array of equal values counts as one
  std::int64_t required_integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  // The layer's own value if the key is an array, else the common value.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t layer) const;
  std::optional<double> number(std::string_view key, std::int64_t layer) const;
  std::optional<bool> flag(std::string_view key, std::int64_t layer) const;
  bool is_array(std::string_view key) const;
  // True if the keys come from another format's configuration, which lists the layers' kinds.
  bool is_translated() const { return has("translated"); }
  // A key without prefix.
  std::optional<double> global_number(const std::string& key, std::int64_t layer) const;

  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  bool has_tensor(std::int64_t layer, std::string_view stem) const;  // "attn_q_norm.weight"
  std::vector<std::int64_t> shape_of(std::int64_t layer, std::string_view stem) const;
  // The rows or columns of a matrix or of each matrix in a stack; fails if it is neither.
  std::int64_t rows_of(std::int64_t layer, std::string_view stem) const;
  std::int64_t columns_of(std::int64_t layer, std::string_view stem) const;
  TensorTable& tensors() { return tensors_; }

  // Reads the keys that all decoders share: sizes, rope, and layers of plain attention and feed-forwards, with fused
  // projections if the file has them fused. Families then change what differs.
  ModelSpec read_plain(RopeStyle style);
  // Reads experts in the layers that have a router, by the common keys and their tensors' widths. `gating`: the gate's
  // code if the file has none.
  void read_experts(ModelSpec& spec, std::int64_t gating = kSoftmaxGating);
  // Reads which layers have a window: those whose index modulo `period` is below period - 1, or as listed in an array.
  // The window is attention.sliding_window, else `window`; zero: no layer has one.
  std::vector<bool> read_windows(ModelSpec& spec, std::int64_t period, bool array_counts = false,
                                 std::int64_t window = 0);
  // Does the same, and gives sliding layers a rope of their own, local_rope().
  std::vector<bool> read_windows_with_rope(ModelSpec& spec, std::int64_t period, bool array_counts, double base);
  // The rope of sliding layers: plain, with base and width by their own keys, else `base` and the common width.
  RopeConfig local_rope(const ModelSpec& spec, double base) const;
  // Adds a rope and returns its index.
  static int add_rope(ModelSpec& spec, const RopeConfig& rope);
  // Leaves out the layers that predict further tokens, with their tensors.
  void drop_next_token_layers(ModelSpec& spec);
  // Whether the file has such a layer and it is wanted: it is then the last layer, until it is moved out of the
  // list.
  bool keeps_next_token_layer() const;
  void take_next_token_layer(ModelSpec& spec) const;

  // `ignored`: keys, separated by spaces, that have no effect in this architecture's files.
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
