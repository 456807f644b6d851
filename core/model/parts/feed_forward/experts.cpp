#include "core/model/parts/feed_forward/feed_forwards.h"

#include <algorithm>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/rank_cut.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

namespace {

// Width of the experts' inputs and outputs.
std::int64_t expert_width(const FeedForwardSpec& ffn, std::int64_t hidden_size) {
  return ffn.latent_size > 0 ? ffn.latent_size : hidden_size;
}

}  // namespace

std::span<const RoleName> Experts::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kRouter, {"ffn_gate_inp", "mlp.gate"}},
      {Role::kChoiceBias, {"exp_probs_b", "mlp.gate.e_score_correction_bias$", ".bias"}},
      {Role::kGateExperts, {"ffn_gate_exps", "mlp.experts.#.gate_proj"}},
      {Role::kUpExperts, {"ffn_up_exps", "mlp.experts.#.up_proj"}},
      {Role::kGateUpExperts, {"ffn_gate_up_exps", ""}},
      {Role::kDownExperts, {"ffn_down_exps", "mlp.experts.#.down_proj"}},
      {Role::kDownExpertsScale, {"ffn_down_exps", "router.per_expert_scale$", ".scale"}},
      {Role::kExpertsBias, {"ffn_exps_bias", ""}},
      {Role::kGateShared, {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"}},
      {Role::kUpShared, {"ffn_up_shexp", "mlp.shared_experts.up_proj"}},
      {Role::kDownShared, {"ffn_down_shexp", "mlp.shared_experts.down_proj"}},
      {Role::kSharedGate, {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}},
      {Role::kLatentDown, {"ffn_latent_down", ""}},
      {Role::kLatentUp, {"ffn_latent_up", ""}},
  };
  return kRoles;
}

void Experts::list_weights(const LayerSpec& layer, WeightList& list) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  const std::int64_t hidden = list.hidden_size();
  const std::int64_t width = expert_width(ffn, hidden);
  list.alone(Role::kRouter, ffn.num_experts, hidden).is_exact = true;
  if (ffn.has_choice_bias) list.offsets(Role::kChoiceBias, ffn.num_experts);
  if (ffn.latent_size > 0) {
    list.alone(Role::kLatentDown, width, hidden);
    list.alone(Role::kLatentUp, hidden, width);
  }
  if (ffn.fused_experts) {
    list.experts(Role::kGateUpExperts, Role::kGateExperts, 2 * ffn.expert_size, width, ffn.num_experts);
  } else {
    if (ffn.experts_gated)
      list.experts(Role::kGateExperts, Role::kGateExperts, ffn.expert_size, width, ffn.num_experts);
    list.experts(Role::kUpExperts, Role::kGateExperts, ffn.expert_size, width, ffn.num_experts);
  }
  list.experts(Role::kDownExperts, Role::kDownExperts, width, ffn.expert_size, ffn.num_experts).has_own_scales = true;
  list.vector(Role::kDownExpertsScale, ffn.num_experts, true);
  list.vector(Role::kExpertsBias, hidden, true);
  if (ffn.shared_size == 0) return;
  if (ffn.experts_gated) list.product(Role::kGateShared, Role::kGateShared, ffn.shared_size, hidden);
  list.product(Role::kUpShared, Role::kGateShared, ffn.shared_size, hidden);
  list.alone(Role::kDownShared, hidden, ffn.shared_size);
  if (ffn.shared_gate) list.alone(Role::kSharedGate, 1, hidden);
}

std::vector<ExpertMatrix> Experts::expert_matrices(const LayerSpec& layer, std::int64_t hidden_size) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  const std::int64_t width = expert_width(ffn, hidden_size);
  const std::int64_t size = ffn.expert_size;
  const ExpertMatrix down{.role = Role::kDownExperts, .rows = width, .cols = size, .is_down = true, .is_whole = true};
  if (!ffn.experts_gated) return {{.role = Role::kUpExperts, .rows = size, .cols = width, .is_whole = true}, down};
  return {{.role = Role::kGateExperts, .rows = size, .cols = width},
          {.role = Role::kUpExperts, .rows = size, .cols = width, .first_output = size},
          {.role = Role::kGateUpExperts, .rows = 2 * size, .cols = width, .is_whole = true},
          down};
}

void Experts::check(const LayerSpec& layer, std::int64_t /*index*/, const SpecChecker& check) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  check.in_range("the number of experts", ffn.num_experts, 1, 1 << 16);
  check.in_range("the number of experts used", ffn.route.num_chosen, 1, ffn.num_experts);
  check.in_range("the expert feed-forward length", ffn.expert_size, 1, 1 << 22);
  check.in_range("the shared feed-forward length", ffn.shared_size, 0, 1 << 22);
  check.in_range("the latent width of the experts", ffn.latent_size, 0, 1 << 20);
  check.in_range("the number of expert groups", ffn.route.num_groups, 1, ffn.num_experts);
  check.in_range("the number of expert groups used", ffn.route.num_groups_chosen, 1, ffn.route.num_groups);
  check.require(ffn.num_experts % ffn.route.num_groups == 0, "the experts do not divide into their groups");
  check.require(ffn.route.num_groups_chosen * (ffn.num_experts / ffn.route.num_groups) >= ffn.route.num_chosen,
                "the groups used have fewer experts than are used");
}

void Experts::fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  const std::int64_t chosen = ffn.route.num_chosen;
  const std::int64_t width = expert_width(ffn, hidden_size);
  widths.fit(kRouter, ffn.num_experts);
  widths.fit(kExpertIn, ffn.latent_size);
  if (ffn.weight_input) widths.fit(kExpertIn, chosen * hidden_size);
  widths.fit(kExpertGateUp, chosen * (ffn.experts_gated ? 2 : 1) * ffn.expert_size);
  widths.fit(kExpertOut, chosen * width);
  if (ffn.shared_size == 0) return;
  widths.fit(kGateUp, (ffn.experts_gated ? 2 : 1) * ffn.shared_size);
  widths.fit(kActivated, ffn.shared_size);
  widths.fit(kNormed, hidden_size);
}

void Experts::bound(const LayerSpec& layer, StepBounds& step) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  step.num_experts = std::max(step.num_experts, ffn.num_experts);
  step.chosen_rows = std::max<std::int64_t>(step.chosen_rows, ffn.route.num_chosen);
  step.widest_expert_row = std::max(step.widest_expert_row, ffn.expert_size);
}

const char* Experts::lacking(const LayerSpec& /*layer*/, const ModelSpec& /*model*/, Backend& backend) const {
  return first_lacking({{true, Ability::kExperts, "experts"}}, backend);
}

std::string Experts::why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  std::string why = RankCut::why_not_columns("an expert", ffn.expert_size,
                                             RankCut::experts_of(weights, Role::kDownExperts), num_ranks);
  if (ffn.shared_size > 0 && why.empty())
    why = RankCut::why_not_columns("the shared expert", ffn.shared_size,
                                   RankCut::product_of(weights, Role::kDownShared), num_ranks);
  return why;
}

void Experts::cut(const LayerSpec& layer, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const {
  const FeedForwardSpec& whole = layer.feed_forward;
  std::vector<LinearSource>& down = group.experts.at(Role::kDownExperts);
  const FeatureRange part = rank.features(whole.expert_size, RankCut::features_of_block(down));
  spec.feed_forward.expert_size = part.count;
  for (LinearSource& expert : group.experts.at(Role::kGateExperts))
    expert = RankCut::rows_in(expert, RankCut::halves(part, whole.expert_size, whole.experts_gated));
  for (LinearSource& expert : down)
    rank.take_columns(expert, part);
  if (!rank.is_first()) group.vectors.erase(Role::kExpertsBias);
  if (!rank.is_first() && whole.latent_size > 0) group.products.at(Role::kLatentUp).bias.clear();
  if (whole.shared_size == 0) return;
  LinearSource& shared_down = group.products.at(Role::kDownShared);
  const FeatureRange shared = rank.features(whole.shared_size, RankCut::features_of_block({&shared_down, 1}));
  spec.feed_forward.shared_size = shared.count;
  RankCut::take_rows(group, Role::kGateShared, RankCut::halves(shared, whole.shared_size, whole.experts_gated));
  rank.take_columns(shared_down, shared);
}

// --- computation -----------------------------------------------------------------------------------------------------

// Some routers see the layer's input: their logits are kept for the experts after the mixer.
void Experts::prepare(const LayerRun& layer, MatrixView x) const {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  if (!ffn.routes_early) return;
  layer.multiply(Role::kRouter, x, layer.room(kRouter, x.rows, ffn.num_experts), false);
}

void Experts::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  QUIRE_CHECK(in.form == ProductInput::Form::kPlain && !accumulate, "experts take a made input");
  run_routed(layer, in.x, in.x, out);
}

void Experts::run_routed(const LayerRun& layer, MatrixView router_in, MatrixView in, MatrixView out) {
  RankSum* const sum = layer.work.rank_sum;
  if (sum == nullptr) return run_share(layer, router_in, in, out);
  const MatrixView share = sum->share(out.rows, out.cols);
  run_share(layer, router_in, in, share);
  sum->add_up(share, out, false);
}

void Experts::run_share(const LayerRun& layer, MatrixView router_in, MatrixView in, MatrixView out) {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  GraphOps& graph = layer.graph();
  const std::int64_t chosen = ffn.route.num_chosen;
  const std::int64_t count = out.rows * chosen;
  const MatrixView logits = layer.room(kRouter, out.rows, ffn.num_experts);
  if (!ffn.routes_early) layer.multiply(Role::kRouter, router_in, logits, false);
  RouteOptions options = ffn.route;
  options.choice_bias = layer.vector(Role::kChoiceBias);
  options.expert_scale = layer.vector(Role::kDownExpertsScale);
  ExpertChoices choices = graph.route(logits, options);
  MatrixView expert_in = in;
  const bool is_latent = ffn.latent_size > 0;
  if (is_latent) {
    expert_in = layer.room(kExpertIn, out.rows, ffn.latent_size);
    layer.multiply(Role::kLatentDown, in, expert_in, false);
  } else if (ffn.weight_input) {
    expert_in = weighted_inputs(layer, in, choices);
    choices = {.num_rows = count, .num_chosen = 1, .ids = choices.ids};
  }
  const std::int64_t width = ffn.experts_gated ? 2 * ffn.expert_size : ffn.expert_size;
  // Room for a row per choice.
  const auto room_of_choices = [&](ActivationName which, std::int64_t cols) {
    return MatrixView{layer.room(which, out.rows, chosen * cols).data, count, cols, cols};
  };
  ExpertArgs args{.gate_up = layer.weights.experts_of(Role::kGateExperts),
                  .down = layer.weights.experts_of(Role::kDownExperts),
                  .gated = ffn.experts_gated,
                  .activation = ffn.expert_activation};
  add_changes(layer, expert_in.rows / out.rows, args);
  graph.experts(args, choices, expert_in, room_of_choices(kExpertGateUp, width),
                room_of_choices(kExpertOut, expert_in.cols), is_latent || ffn.weight_input ? expert_in : out);
  if (ffn.weight_input) sum_choices(layer, expert_in, out);
  if (is_latent) layer.multiply(Role::kLatentUp, expert_in, out, false);
  if (const float* bias = layer.vector(Role::kExpertsBias); bias != nullptr)
    graph.add({const_cast<float*>(bias), out.rows, out.cols, 0}, 1.0F, out);
  if (ffn.shared_size > 0) add_shared_expert(layer, in, out);
  if (ffn.experts_scale != 1.0) graph.scale(out, static_cast<float>(ffn.experts_scale));
}

// Adds adapters' changes to arguments of experts that have `rows_of_each` input rows for each row of the slice. All
// runs of an adapter share a change.
void Experts::add_changes(const LayerRun& layer, std::int64_t rows_of_each, ExpertArgs& args) {
  const std::span<const AdapterRun> runs = layer.slice.adapters;
  if (runs.empty()) return;
  std::vector<ExpertChange>& changes = layer.work.expert_changes;
  std::vector<std::int32_t>& of_rows = layer.work.row_changes;
  const std::int64_t num_rows = layer.slice.end - layer.slice.begin;
  changes.clear();
  of_rows.assign(static_cast<std::size_t>(num_rows * rows_of_each), -1);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ExpertChange change = runs[i].adapter->of_experts(layer.index);
    if (change.gate_up.empty() && change.down.empty()) continue;
    const auto first = std::ranges::find(runs, runs[i].adapter, &AdapterRun::adapter);
    std::int32_t index = static_cast<std::int32_t>(changes.size());
    if (static_cast<std::size_t>(first - runs.begin()) < i) {
      index = of_rows[static_cast<std::size_t>(first->begin * rows_of_each)];
    } else {
      changes.push_back(change);
    }
    std::fill(of_rows.begin() + runs[i].begin * rows_of_each, of_rows.begin() + runs[i].end * rows_of_each, index);
  }
  if (changes.empty()) return;
  const std::int64_t width = layer.work.activations.widths()[kExpertLowRank];
  args.changes = changes;
  args.row_changes = of_rows;
  args.low_rank_stride = width / layer.spec.feed_forward.route.num_chosen;
  args.low_rank = layer.room(kExpertLowRank, num_rows, width).data;
}

// A row for each choice, multiplied by its weight.
MatrixView Experts::weighted_inputs(const LayerRun& layer, MatrixView in, const ExpertChoices& choices) {
  const MatrixView wide = layer.room(kExpertIn, in.rows, choices.num_chosen * in.cols);
  for (std::int64_t choice = 0; choice < choices.num_chosen; ++choice)
    layer.graph().copy(in, columns(wide, choice * in.cols, in.cols));
  const MatrixView rows{wide.data, choices.count(), in.cols, in.cols};
  layer.graph().scale_by_weights(choices, rows);
  return rows;
}

void Experts::sum_choices(const LayerRun& layer, MatrixView rows, MatrixView out) {
  const std::int64_t chosen = rows.rows / out.rows;
  const MatrixView wide{rows.data, out.rows, chosen * out.cols, chosen * out.cols};
  layer.graph().copy(columns(wide, 0, out.cols), out);
  for (std::int64_t choice = 1; choice < chosen; ++choice)
    layer.graph().add(columns(wide, choice * out.cols, out.cols), 1.0F, out);
}

void Experts::add_shared_expert(const LayerRun& layer, MatrixView in, MatrixView out) {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  GraphOps& graph = layer.graph();
  const std::int64_t size = ffn.shared_size;
  const MatrixView gate_up = layer.room(kGateUp, out.rows, ffn.experts_gated ? 2 * size : size);
  const MatrixView activated = layer.room(kActivated, out.rows, size);
  const MatrixView shared = layer.room(kNormed, out.rows, out.cols);
  layer.multiply(Role::kGateShared, in, gate_up, false);
  const MatrixView up = ffn.experts_gated ? columns(gate_up, size, size) : MatrixView{};
  graph.activate(ffn.shared_activation, columns(gate_up, 0, size), up, activated);
  layer.multiply(Role::kDownShared, activated, shared, false);
  if (ffn.shared_gate) {
    const MatrixView gate = layer.room(kRouter, out.rows, 1);
    layer.multiply(Role::kSharedGate, in, gate, false);
    graph.gate(Nonlinearity::kSigmoid, gate, shared);
  }
  graph.add(shared, 1.0F, out);
}

}  // namespace quire
