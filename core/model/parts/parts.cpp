#include "core/model/parts/parts.h"

#include <array>

#include "core/model/parts/feed_forward/feed_forwards.h"
#include "core/model/parts/mixers/attention.h"
#include "core/model/parts/mixers/attention_mamba2.h"
#include "core/model/parts/mixers/latent_attention.h"
#include "core/model/parts/mixers/recurrent_mixers.h"
#include "core/model/parts/model/head.h"
#include "core/model/parts/model/layer_branches.h"
#include "core/model/parts/model/layer_embeddings.h"
#include "core/model/parts/model/next_tokens.h"
#include "core/model/parts/model/residual_streams.h"
#include "core/model/parts/model/token_embedding.h"

namespace quire {

namespace {

class NoPart final : public Part {
 public:
  bool is_absent() const override { return true; }
  bool is_plain(const LayerSpec&) const override { return false; }
  void run(const LayerRun&, const ProductInput&, MatrixView, bool) const override {}
};

const NoPart kEmptyPart{};
const Attention kAttention{};
const LatentAttention kLatent{};
const DeltaNet kDeltaNet{};
const KimiDelta kKimiDelta{};
const ShortConv kShortConv{};
const Mamba kMamba{};
const Mamba2 kMamba2{};
const AttentionAndMamba2 kAttentionAndMamba2{};
const LightningAttention kLightning{};
const Dense kDense{};
const Experts kExperts{};
const DenseAndExperts kDenseAndExperts{};
const TokenEmbedding kTokenEmbedding{};
const LayerBranches kLayerBranches{};
const LayerEmbeddings kLayerEmbeddings{};
const ResidualStreams kResidualStreams{};
const Head kHead{};
const NextTokens kNextTokens{};

// Indexed by Mixer.
constexpr std::array<const Part*, 10> kMixers{&kEmptyPart, &kAttention, &kLatent, &kDeltaNet,           &kKimiDelta,
                                              &kShortConv, &kMamba,     &kMamba2, &kAttentionAndMamba2, &kLightning};
static_assert(kMixers[static_cast<std::size_t>(Mixer::kLightning)] == &kLightning);
// Indexed by FeedForwardSpec::Kind.
constexpr std::array<const Part*, 4> kFeedForwards{&kEmptyPart, &kDense, &kExperts, &kDenseAndExperts};
static_assert(kFeedForwards[static_cast<std::size_t>(FeedForwardSpec::Kind::kBoth)] == &kDenseAndExperts);
constexpr std::array<const ModelPart*, 6> kModelParts{&kTokenEmbedding,  &kLayerBranches, &kLayerEmbeddings,
                                                      &kResidualStreams, &kHead,          &kNextTokens};

}  // namespace

const Part& mixer_part(const LayerSpec& layer) {
  return *kMixers[static_cast<std::size_t>(layer.mixer)];
}

const Part& feed_forward_part(const LayerSpec& layer) {
  return *kFeedForwards[static_cast<std::size_t>(layer.feed_forward.kind)];
}

std::span<const Part* const> mixer_parts() {
  return kMixers;
}

std::span<const Part* const> feed_forward_parts() {
  return kFeedForwards;
}

std::span<const ModelPart* const> model_parts() {
  return kModelParts;
}

}  // namespace quire
