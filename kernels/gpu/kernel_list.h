// The kernels by name, for their compilers: visit(name, instance) of each family. The name of a family's instance is
// the family, the type's form and, if there are several, the tiles of eight rows.
#pragma once

#include "kernels/gpu/form_names.h"
#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/kernels/attention_rows.h"
#include "kernels/gpu/kernels/attention_tiles.h"
#include "kernels/gpu/kernels/draw.h"
#include "kernels/gpu/kernels/embed.h"
#include "kernels/gpu/kernels/experts.h"
#include "kernels/gpu/kernels/graph_rows.h"
#include "kernels/gpu/kernels/linear_f32.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/linear_skinny.h"
#include "kernels/gpu/kernels/linear_wide.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/gpu/kernels/recurrent.h"
#include "kernels/gpu/kernels/round_rows.h"
#include "kernels/gpu/kernels/route.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/kernels/streams.h"
#include "kernels/gpu/kernels/sum_ranks.h"

namespace quire::gpu {

// A kernel's type, passed by value to a visitor.
template <class K>
struct Instance {
  using Type = K;
};

template <class Visit>
void visit_linear_skinny(const Visit& visit) {
#define QUIRE_VISIT(form)                                                             \
  visit("linear_row " #form, Instance<LinearRow<DType::k##form, 4, 2>>());            \
  visit("linear_row " #form " few", Instance<LinearRow<DType::k##form, 4, 5>>());     \
  visit("linear_row " #form " deep", Instance<LinearRowDeep<DType::k##form>>());      \
  visit("linear_skinny " #form " 1", Instance<LinearSkinny<DType::k##form, 1, 1>>()); \
  visit("linear_skinny " #form " 2", Instance<LinearSkinny<DType::k##form, 1, 2>>()); \
  visit("linear_skinny " #form " 4", Instance<LinearSkinny<DType::k##form, 1, 4>>()); \
  visit("linear_skinny " #form " 4 2", Instance<LinearSkinny<DType::k##form, 2, 4>>());
  QUIRE_STRIP_FORMS(QUIRE_VISIT)
#undef QUIRE_VISIT
}

template <class Visit>
void visit_linear_wide(const Visit& visit) {
#define QUIRE_VISIT(form) visit("linear_wide " #form, Instance<LinearWide<DType::k##form>>());
  QUIRE_STRIP_FORMS(QUIRE_VISIT)
#undef QUIRE_VISIT
}

template <class Visit>
void visit_linear_half(const Visit& visit) {
#define QUIRE_VISIT(type)                                                                        \
  visit("linear_half " #type " 1", Instance<LinearHalf<DType::k##type, kHalfFew[0]>>());         \
  visit("linear_half " #type " 4", Instance<LinearHalf<DType::k##type, kHalfFew[1]>>());         \
  visit("linear_half " #type " 8", Instance<LinearHalf<DType::k##type, kHalfFew[2]>>());         \
  visit("linear_half " #type " middle", Instance<LinearHalf<DType::k##type, kHalfMiddle>>());    \
  visit("linear_half " #type " wide", Instance<LinearHalf<DType::k##type, kHalfWide>>());        \
  visit("round_rows " #type " plain", Instance<RoundRows<DType::k##type, RowForm::kPlain>>());   \
  visit("round_rows " #type " normed", Instance<RoundRows<DType::k##type, RowForm::kNormed>>()); \
  visit("round_rows " #type " gated", Instance<RoundRows<DType::k##type, RowForm::kGated>>());
  QUIRE_VISIT(F16)
  QUIRE_VISIT(BF16)
#undef QUIRE_VISIT
}

template <class Visit>
void visit_rows(const Visit& visit) {
  visit("norm_quantise plain", Instance<NormQuantise<RowForm::kPlain>>());
  visit("norm_quantise normed", Instance<NormQuantise<RowForm::kNormed>>());
  visit("norm_quantise gated", Instance<NormQuantise<RowForm::kGated>>());
  visit("embed F32", Instance<EmbedRows<DType::kF32>>());
  visit("embed F16", Instance<EmbedRows<DType::kF16>>());
  visit("embed BF16", Instance<EmbedRows<DType::kBF16>>());
  visit("embed F8", Instance<EmbedRows<DType::kF8>>());
#define QUIRE_VISIT(form) visit("embed " #form, Instance<EmbedStrips<DType::k##form>>());
  QUIRE_STRIP_FORMS(QUIRE_VISIT)
#undef QUIRE_VISIT
  visit("make_rows plain", Instance<MakeRows<RowForm::kPlain>>());
  visit("make_rows normed", Instance<MakeRows<RowForm::kNormed>>());
  visit("make_rows gated", Instance<MakeRows<RowForm::kGated>>());
  visit("head_norm", Instance<HeadNorm>());
  visit("rope", Instance<Rope>());
  visit("gather", Instance<Gather>());
  visit("row_math", Instance<RowMath>());
  visit("layer_norm", Instance<LayerNorm>());
  visit("route", Instance<Route>());
  visit("group_choices", Instance<GroupChoices>());
  visit("plan_experts", Instance<PlanExperts>());
  visit("combine_choices", Instance<CombineChoices>());
  visit("mix_streams", Instance<MixStreams>());
  visit("add_to_streams", Instance<AddToStreams>());
  visit("match_length", Instance<MatchLength>());
  visit("keep_excess", Instance<KeepExcess>());
  visit("copy_bytes", Instance<CopyBytes>());
  visit("sum_ranks", Instance<SumRanks>());
  visit("linear_f32 F32", Instance<LinearFloat<DType::kF32>>());
  visit("linear_f32 F8", Instance<LinearFloat<DType::kF8>>());
}

template <class Visit>
void visit_attention_tiles(const Visit& visit) {
#define QUIRE_VISIT(name, type)                                                        \
  visit("attend_tiles " name " 1 128", Instance<AttendTiles<KvType::type, 1, 128>>()); \
  visit("attend_tiles " name " 4 128", Instance<AttendTiles<KvType::type, 4, 128>>()); \
  visit("attend_tiles " name " 1 256", Instance<AttendTiles<KvType::type, 1, 256>>()); \
  visit("attend_tiles " name " 4 256", Instance<AttendTiles<KvType::type, 4, 256>>());
  QUIRE_VISIT("f16", kF16)
  QUIRE_VISIT("bf16", kBF16)
#undef QUIRE_VISIT
}

template <class Visit>
void visit_attention(const Visit& visit) {
  visit("store_kv f32", Instance<StoreKv<KvType::kF32>>());
  visit("store_kv f16", Instance<StoreKv<KvType::kF16>>());
  visit("store_kv bf16", Instance<StoreKv<KvType::kBF16>>());
  visit("store_kv int8", Instance<StoreKv<KvType::kI8>>());
  visit("attend f32", Instance<Attend<KvType::kF32>>());
  visit("attend f16", Instance<Attend<KvType::kF16>>());
  visit("attend bf16", Instance<Attend<KvType::kBF16>>());
  visit("attend int8", Instance<Attend<KvType::kI8>>());
  visit("merge_partitions", Instance<MergePartitions>());
}

template <class Visit>
void visit_draw(const Visit& visit) {
  visit("draw_rows", Instance<DrawRows>());
  visit("draw_sums", Instance<DrawSums>());
  visit("draw_pick", Instance<DrawPick>());
  visit("score_pick", Instance<ScorePick>());
  visit("fill_tokens", Instance<FillTokens>());
}

template <class Visit>
void visit_recurrent(const Visit& visit) {
  visit("short_conv", Instance<ShortConv>());
  visit("advance_state delta", Instance<AdvanceState<StateForm::kDelta>>());
  visit("advance_state channels", Instance<AdvanceState<StateForm::kDeltaPerChannel>>());
  visit("advance_state space", Instance<AdvanceState<StateForm::kStateSpace>>());
  visit("selective_scan", Instance<SelectiveScan>());
  visit("gated_norm", Instance<GatedNorm>());
}

}  // namespace quire::gpu
