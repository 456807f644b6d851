#include "core/model/layers/packed_layers.h"

namespace quire {

namespace {

class Packer {
 public:
  Packer(Backend& backend, const std::function<void(const WeightSource&)>& packed, const PackedWeights* cached,
         PackedWriter* writer)
      : backend_(backend), packed_(packed), cached_(cached), writer_(writer) {}

  PackedGroup pack(const SourceGroup& from) {
    PackedGroup to;
    const auto at = [](WeightRole role) { return static_cast<std::size_t>(role); };
    for (const auto& [role, values] : from.vectors)
      to.vectors[at(role)] = backend_.upload(values);
    for (const auto& [role, values] : from.biases)
      to.biases[at(role)] = backend_.upload(values);
    for (const auto& [role, table] : from.rows)
      to.rows[at(role)] = backend_.load_embedding(table);
    for (const auto& [role, product] : from.products)
      to.products[at(role)] = load(product);
    for (const auto& [role, experts] : from.experts) {
      for (const LinearSource& expert : experts)
        to.experts[at(role)].push_back(load(expert));
    }
    return to;
  }

 private:
  std::unique_ptr<Linear> load(const LinearSource& source) {
    std::unique_ptr<Linear> linear;
    if (cached_ != nullptr) linear = backend_.adopt_linear(source.parts, source.bias, (*cached_)[num_loaded_++]);
    if (linear == nullptr) linear = backend_.load_linear(source.parts, source.bias);
    if (writer_ != nullptr) writer_->add(linear->packed());
    for (const WeightSource& part : source.parts)
      packed_(part);
    return linear;
  }

  Backend& backend_;
  const std::function<void(const WeightSource&)>& packed_;
  const PackedWeights* cached_;
  PackedWriter* writer_;
  std::size_t num_loaded_ = 0;
};

}  // namespace

PackedModel pack_weights(const WeightSources& sources, Backend& backend,
                         const std::function<void(const WeightSource&)>& packed, const PackedWeights* cached,
                         PackedWriter* writer) {
  Packer packer(backend, packed, cached, writer);
  PackedModel out;
  for (const SourceGroup& layer : sources.layers)
    out.layers.push_back(packer.pack(layer));
  out.model = packer.pack(sources.model);
  return out;
}

}  // namespace quire
