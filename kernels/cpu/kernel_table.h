// KernelTable: the kernels of one ISA level, as plain function pointers over plain structs. Immutable facts; any
// thread. Included by the ISA level files, so it names no standard container and defines no function with external
// linkage. Invariant of every kernel: the arithmetic of one row (or one query vector) never depends on the others
// beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cpu/recurrent_table.h"
#include "kernels/formats/element_type.h"

namespace quire {

inline constexpr int kPanelCols = 16;   // output columns interleaved in packed weights
inline constexpr int kRowTile = 8;      // rows of activations packed together
inline constexpr int kAmxRowTile = 32;  // rows packed together for bf16 tiles
inline constexpr int kPairRows = 16;    // rows whose pairs of features lie side by side
inline constexpr int kQuantBlock = 32;
inline constexpr int kQueryTile = 8;       // query vectors that share the loads of one K/V head
inline constexpr int kMaxQueryTile = 32;   // limit of query_tile on any level
inline constexpr int kHeadsTogether = 8;   // most K/V heads that attention processes together
inline constexpr int kTilesTogether = 16;  // most tiles of a head's queries processed together
inline constexpr int kPartition = 256;     // tokens of context per attention partition, by absolute position

// 32 activations as int8 with their scale, one cache line. Integer dot products begin with a start value: minus the
// zero times the sum of the activations, as if each quant had its zero subtracted.
struct alignas(64) ActBlock {
  std::int8_t quants[kQuantBlock];
  float scale;
  float total;            // the scale times the sum of the quants
  std::int32_t start[5];  // for zeros of 8, 16 and 128, then for a zero of 32 the first and the second half
};

// The blocks of four rows in one, for levels that multiply four rows at a time: it holds row r of a tile if the tile
// has at least three of rows [r / 4 * 4, + 4). It lies in the place of the four blocks.
struct alignas(64) ActQuad {
  std::int8_t quants[4 * kQuantBlock];  // order chosen by the level
  float scale[4];
  float total[4];
  std::int32_t start[5][4];
};
static_assert(sizeof(ActQuad) == 4 * sizeof(ActBlock));

// The place of a row among the rows of its tile.
struct TileRow {
  std::int64_t index;
  std::int64_t rows;  // without padding

  bool in_quad() const { return rows - index / 4 * 4 >= 3; }
};

// Initial value of a dot product: start[index] times a power of two.
struct DotStart {
  int index = -1;  // below zero: the sum starts at zero
  int shift = 0;   // to the left; negative: to the right, which loses no bit
};

[[maybe_unused, gnu::always_inline]] static inline std::int32_t start_value(const ActBlock& x, DotStart start) {
  if (start.index < 0) return 0;
  return start.shift >= 0 ? x.start[start.index] * (1 << start.shift) : x.start[start.index] >> -start.shift;
}

// Form of activations in which a level multiplies a type of weights.
enum class Activation : std::uint8_t {
  kBlocks,  // int8 with a scale per 32
  kFloats,  // f32
  kHalves,  // bf16
  kPairs,   // bf16, pairs of features of sixteen rows side by side
};

// Layouts of 16 columns times 32 features of codes in a panel.
enum class PanelForm : std::uint8_t {
  kByFeature,        // groups of four features, columns side by side
  kNibblesByColumn,  // four-bit codes by column, each in the order of nibble_place
  kSignedCodes,      // codes by feature: eight bits less their zero of 128, linear ones of four bits less 8
};

// Index of a feature among a column's 32 nibbles: features 4 to 7 of each eight are in the second half.
constexpr int nibble_place(int feature) {
  return feature / 4 % 2 * 16 + feature / 8 * 4 + feature % 4;
}

// Panels of 16-bit weights, and activations beside float weights, are padded with zeros to this depth.
constexpr std::int64_t padded_depth(std::int64_t depth) {
  return (depth + 31) / 32 * 32;
}

// Rows of a tile are padded to 1, 2, 4 or 8, so that few instances of each kernel serve every row count.
constexpr std::int64_t padded_tile_rows(std::int64_t rows) {
  return rows > 4 ? 8 : rows > 2 ? 4 : rows;
}

// out[rows, out_cols] (+)= x W^T + bias for panels of one packed weight matrix.
struct GemmArgs {
  const std::byte* weights = nullptr;
  std::size_t panel_bytes = 0;
  std::size_t quants_offset = 0;  // inside a panel, of the quants behind scales; 0 for float types
  std::int64_t depth = 0;         // input features
  std::int64_t rows = 0;
  const ActBlock* blocks = nullptr;       // [tile][depth / 32][padded rows of the tile], some in ActQuads
  const float* floats = nullptr;          // [tile][padded depth][padded rows of the tile]
  const std::uint16_t* halves = nullptr;  // bf16 in the order of the level's round_row, or turn_rows
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t out_cols = 0;
  const float* bias = nullptr;  // [out_cols] or null
  float scale = 1.0f;           // factor of all products
  bool accumulate = false;
  bool past_caches = false;  // more results than a cache keeps; out lies at multiples of a line
};

// A row of an operation's activations.
struct RowOfMany {
  const float* values = nullptr;  // [depth]
  std::int64_t row = 0;           // its number
  std::int64_t rows = 0;
  std::int64_t depth = 0;
};

// Panels [panel_begin, panel_end) times row tiles [tile_begin, tile_end).
struct GemmRange {
  std::int64_t panel_begin = 0;
  std::int64_t panel_end = 0;
  std::int64_t tile_begin = 0;
  std::int64_t tile_end = 0;
};

enum class KvElement : std::uint8_t { kF32, kF16, kBF16, kI8, kI4 };

// int4: this many features of a token and head share a scale and a minimum; a value is minimum + scale * code. Errors
// in K cost more accuracy than errors in V.
inline constexpr std::int64_t kKeyGroup = 16;
inline constexpr std::int64_t kWordCodes = 8;  // features of K in four bytes
inline constexpr std::int64_t kValueGroup = 32;
inline constexpr std::int64_t kMostValueGroups = 32;

constexpr std::int64_t groups_of(std::int64_t head_dim, std::int64_t group) {
  return (head_dim + group - 1) / group;
}

// A head of one layer's K/V: inside a block K is [head_dim][block_size] and V is [block_size][padded_dim], each for
// int8 followed by block_size f32 scales. In int4, four bytes of K hold eight features of a token, [head_dim / 8]
// [block_size], and their byte i holds features i and i + 4; a byte of V holds features i and i + 16 of each 32. f16
// scales [groups][block_size] and f16 minima of the same shape follow.
struct KvHeadView {
  std::byte* base = nullptr;     // K of this head in block 0
  std::size_t block_stride = 0;  // bytes from one block to the next
  std::size_t value_offset = 0;  // bytes from K to V of the same head
  std::int64_t block_size = 0;
  std::int64_t head_dim = 0;
  std::int64_t padded_dim = 0;  // V's size rounded up to 16, of int4 to 32; the padding of V stays zero
  bool value_in_key = false;    // V is the first elements of K; for the masked kernel
  KvElement element = KvElement::kF16;
};

// Limits on the tokens that a tile's queries see, and the changes of their scores.
struct TileMask {
  std::int64_t first[kQueryTile];     // token that a query sees first; never decreasing
  std::int64_t position[kQueryTile];  // position of the query
  float slope[kQueryTile];            // subtracted from a score per token of distance
  float softcap = 0.0f;               // scores become softcap * tanh(score / softcap); 0: unchanged
};

// Query vectors over the same sequence and K/V head, up to the kernel's query_tile.
struct QueryTile {
  std::int64_t count = 0;
  const float* queries = nullptr;       // in the layout of pack_queries
  std::int64_t visible[kMaxQueryTile];  // tokens of context that this query may see; never decreasing
  float scale = 1.0f;
  const TileMask* mask = nullptr;  // set for the masked kernel
};

// Softmax over some of the context, not normalised: per query the maximum of the scores times log2 e, the sum of
// 2^(score - maximum), and the weighted sum of V [padded_dim].
struct SoftmaxState {
  float* maximum = nullptr;   // [query_tile]
  float* sum = nullptr;       // [query_tile]
  float* weighted = nullptr;  // [query_tile][padded_dim]
};

// A loop of a single kind of multiply-add; `operations` of one iteration count each multiply-add as two. run is null if
// the level has none.
struct RateLoop {
  double operations = 0.0;
  void (*run)(std::int64_t rounds) = nullptr;
};

// The level's limits, for benchmarks.
struct RateTable {
  void (*read)(const std::byte* from, std::size_t bytes) = nullptr;
  RateLoop fp32;
  RateLoop int8;
  RateLoop bf16;
  RateLoop tile_bf16;
  RateLoop tile_int8;
};

// Attention of tiles of query vectors over one partition of the context.
struct AttendKernel {
  std::int64_t query_tile;                         // query vectors of a tile
  std::int64_t tiles_together;                     // tiles of one head at once, up to kTilesTogether
  std::int64_t (*scratch)(std::int64_t head_dim);  // floats that each thread needs
  // `count` query vectors, to query_tile * padded_depth(head_dim) floats. scale: of the softmax.
  void (*pack_queries)(const float* const* rows, std::int64_t count, std::int64_t head_dim, float scale, float* out);
  // Packs for an int4 cache: rows are rotated, and zero from head_dim to padded_depth(head_dim).
  void (*pack_int4_queries)(const float* const* rows, std::int64_t count, std::int64_t head_dim, float* out);
  // Tokens [partition * kPartition, ...) of the context: for one tile of each of `num_heads` heads with equal counts
  // and visible tokens, because their K and V in a block are adjacent; or for `num_tiles` tiles of one head, ordered by
  // visible tokens, each of which sees some of the partition.
  void (*run)(const KvHeadView* kv, const std::int32_t* block_table, const QueryTile* tiles, std::int64_t num_heads,
              std::int64_t num_tiles, std::int64_t partition, float* scratch, const SoftmaxState* out);
};

struct KernelTable {
  const char* name;
  RateTable rates;
  Activation activation[kNumWeightTypes];  // indexed by DType
  PanelForm panel_form;                    // form of packed weights
  std::size_t (*gemm_scratch)();           // bytes that each thread needs for a product
  // Pack one row of activations; null where no type wants them. tile: its first block; out: the first feature of the
  // row among the `tile_rows` rows of its tile; of halves, all rows of the operation.
  void (*quantize_row)(const float* x, std::int64_t depth, TileRow at, ActBlock* tile);
  // Copies the blocks of a row that is a tile of its own into its place of another tile; zeros where `from` is null.
  void (*place_row)(const ActBlock* from, std::int64_t num_blocks, TileRow at, ActBlock* tile);
  void (*spread_row)(const float* x, std::int64_t depth, std::int64_t tile_rows, float* out);
  void (*round_row)(const RowOfMany& x, std::uint16_t* out);
  // Up to kPairRows rows that begin at a multiple of that, from halves to pairs.
  void (*turn_rows)(const RowOfMany& first, const std::uint16_t* halves, std::uint16_t* pairs);
  void (*gemm[kNumWeightTypes])(const GemmArgs& args, const GemmRange& range, std::byte* scratch);

  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t count, float* out);
  void (*swiglu)(const float* gate, const float* up, std::int64_t count, float* out);
  // out = f(gate) * up, or f(gate) where up is null. alpha_p and alpha_n of xIELU went through softplus before.
  void (*activate)(const ActivationArgs& args, const float* gate, const float* up, std::int64_t count, float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, std::int64_t count, float* out);
  void (*softcap)(const float* x, float cap, std::int64_t count, float* out);
  void (*add_scaled)(const float* x, float factor, std::int64_t count, float* out);  // out += factor * x
  void (*scale)(const float* x, float factor, std::int64_t count, float* out);
  void (*rope_half)(float* head, const float* cos, const float* sin, std::int64_t half);
  void (*rope_interleaved)(float* head, const float* cos, const float* sin, std::int64_t half);

  void (*store_key)(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* key);
  void (*store_value)(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* value);
  AttendKernel attend;         // each query sees all tokens before it; not int4
  AttendKernel attend_masked;  // tiles may have masks; takes every KvElement
  // Adds the next partition's state to the running one. A query that sees no token of `part` keeps its state.
  void (*merge)(const SoftmaxState& state, const SoftmaxState& part, std::int64_t count, std::int64_t padded_dim);
  void (*finish)(const float* weighted, float sum, std::int64_t head_dim, float* out);
  RecurrentTable recurrent;
};

}  // namespace quire
