// RecurrentMixer: the base of mixers that keep a state of fixed size of a sequence; they share names of weights.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

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

}  // namespace quire
