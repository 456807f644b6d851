// The mixers that keep a state of fixed size of a sequence, one Part each, computed in the source of the same name.
// They hold no state themselves: see part.h.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

// The base of these mixers, which share names of weights.
class RecurrentMixer : public Part {
 public:
  // Roles of several recurrent mixers.
  static std::span<const RoleName> shared_roles();

  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::string why_not_cut(const LayerSpec&, const SourceGroup&, int) const override {
    return "it has recurrent layers";
  }
  bool takes_one_product(const LayerSpec&) const override { return true; }

 protected:
  // Checks heads with a matrix state each.
  static void check_matrices(const RecurrentSpec& net, const SpecChecker& check);
  static const char* lacking_matrices(const RecurrentSpec& net, Backend& backend);
  // The convolution before a state space, in place, with its bias and SiLU.
  static void convolve(const LayerRun& layer, MatrixView x);
};

// The gated delta net (arXiv 2412.06464).
class DeltaNet final : public RecurrentMixer {
 public:
  const char* name() const override { return "gated delta net"; }
  std::span<const RoleName> roles() const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// Kimi delta attention (arXiv 2510.26692), a delta net with a decay for each channel of the key.
class KimiDelta final : public RecurrentMixer {
 public:
  const char* name() const override { return "Kimi delta attention"; }
  std::span<const RoleName> roles() const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// Linear attention whose state decays by a fixed factor for each head (Lightning Attention-2, arXiv 2401.04658, as in
// Ring-linear, arXiv 2510.19338).
class LightningAttention final : public RecurrentMixer {
 public:
  const char* name() const override { return "lightning attention"; }
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  std::int64_t rotated_dim(const LayerSpec& layer) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// The first state space with selection (arXiv 2312.00752).
class Mamba final : public RecurrentMixer {
 public:
  const char* name() const override { return "Mamba"; }
  std::span<const RoleName> roles() const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// The state space with a scalar decay for each head (arXiv 2405.21060).
class Mamba2 final : public RecurrentMixer {
 public:
  const char* name() const override { return "Mamba-2"; }
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

// The gated short convolution of LFM2.
class ShortConv final : public RecurrentMixer {
 public:
  const char* name() const override { return "short convolution"; }
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
