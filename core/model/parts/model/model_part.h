// ModelPart: a piece of a model beside the mixers and feed-forwards of its layers: its weights, memory and operations;
// each class has functions of its own that compute it. Model parts hold no data: one constant of each class serves
// every model (model_parts() in parts.h). Any thread; computation engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/model/parts/activations.h"
#include "core/model/parts/model_spec.h"

namespace quire {

class SpecChecker;
class WeightList;

class ModelPart {
 public:
  virtual ~ModelPart() = default;

  // Names of the roles that only this part has.
  virtual std::span<const RoleName> roles() const = 0;
  // Weights outside the layers, in the order of files.
  virtual void list_weights(const ModelSpec&, WeightList&) const {}
  // Weights of each layer.
  virtual void list_layer(const ModelSpec&, const LayerSpec&, WeightList&) const {}
  virtual void check(const ModelSpec&, const SpecChecker&) const {}
  virtual void fit(const ModelSpec&, Widths&) const {}
  // The first operation that the backend does not compute; null: none.
  virtual const char* lacking(const ModelSpec&, Backend&) const { return nullptr; }
  // The reason why several devices cannot compute the model together; empty: they can.
  virtual std::string why_not_cut(const ModelSpec&, int /*num_ranks*/) const { return ""; }

 protected:
  using Role = WeightRole;
  using enum ActivationName;
};

}  // namespace quire
