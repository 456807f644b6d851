// The SIMD wrapper of the scalar level: sixteen lanes as plain loops. Any thread.
// Every level's wrapper offers these operations under the name `Simd`; internal linkage, one level per translation
// unit.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/formats/half.h"

namespace quire {
namespace {

struct Simd {
  using Columns = Simd;  // matrix products use vectors of a panel's columns
  static constexpr int kLanes = 16;
  static constexpr bool kCentred8 = false;     // dot<8> already subtracts the 128 of Q8_0
  static constexpr bool kSignedCodes = false;  // panels hold signed codes; see PanelForm
  static constexpr bool kQuads = false;        // four rows share an ActQuad
  static constexpr int kGemmRows = 4;          // rows per register block, quantised types
  static constexpr int kGemmPanels = 1;
  static constexpr int kGemmVecs = 1;      // vectors across a panel at once, with many rows
  static constexpr int kSinglePanels = 1;  // panels at once for a single row
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatPanels = 1;
  static constexpr int kFloatTilePanels = 4;
  static constexpr int kValueVecs = 2;  // vectors of V per register block at eight queries
  static constexpr int kScoreVecs = 1;  // vectors of tokens, the same for keys

  struct F {
    float v[kLanes];
  };
  struct B {
    std::uint8_t v[4 * kLanes];
  };
  struct I {
    std::int32_t v[kLanes];
  };
  struct Codes {  // values of two tokens
    std::int16_t v[kLanes][2];
  };
  struct Weights {  // values of two tokens
    std::int16_t v[2];
  };

  template <class Op>
  static F map(Op op) {
    F out;
    for (int i = 0; i < kLanes; ++i)
      out.v[i] = op(i);
    return out;
  }

  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    return map([&](int) { return x; });
  }
  static F load(const float* p) {
    return map([&](int i) { return p[i]; });
  }
  static void store(float* p, F a) {
    for (int i = 0; i < kLanes; ++i)
      p[i] = a.v[i];
  }
  // Stores without reading or keeping the line, on levels that can; p is aligned to the vector.
  static void store_past_caches(float* p, F a) { store(p, a); }
  static F load_partial(const float* p, std::int64_t n) {
    return map([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store_partial(float* p, F a, std::int64_t n) {
    for (int i = 0; i < kLanes && i < n; ++i)
      p[i] = a.v[i];
  }
  static F load_f16(const std::uint16_t* p) {
    return map([&](int i) { return f16_to_float(p[i]); });
  }
  static F load_bf16(const std::uint16_t* p) {
    return map([&](int i) { return bf16_to_float(p[i]); });
  }
  static F load_i8(const std::int8_t* p) {
    return map([&](int i) { return static_cast<float>(p[i]); });
  }
  static F load_u8(const std::uint8_t* p) {
    return map([&](int i) { return static_cast<float>(p[i]); });
  }
  // Half of an E8M0 scale; the codes 0 and 1, which would be subnormal, give zero.
  static F load_half_of_e8m0(const std::uint8_t* p) {
    return map([&](int i) { return bits_to_float((p[i] - (p[i] > 0 ? 1u : 0u)) << 23); });
  }
  // The bytes' low seven bits as E4M3 times 2^-120.
  static F load_small_e4m3(const std::uint8_t* p) {
    return map([&](int i) { return bits_to_float((p[i] & 0x7fu) << 20); });
  }
  // Two vectors of E4M3, one behind the other, times 2^-8: so they are f16. The NaN counts as 480.
  static void load_both_e4m3(const std::uint8_t* p, F* out) {
    for (int v = 0; v < 2; ++v) {
      out[v] = map([&](int i) {
        const unsigned code = p[v * kLanes + i];
        return f16_to_float(static_cast<std::uint16_t>((code & 0x7fu) << 7 | (code & 0x80u) << 8));
      });
    }
  }
  static F load_low_nibbles(const std::uint8_t* p) {
    return map([&](int i) { return static_cast<float>(p[i] & 15); });
  }
  static F load_high_nibbles(const std::uint8_t* p) {
    return map([&](int i) { return static_cast<float>(p[i] >> 4); });
  }
  // The nibbles of kLanes bytes of two tokens.
  static void load_code_pairs(const std::uint8_t* first, const std::uint8_t* second, Codes* low, Codes* high) {
    for (int i = 0; i < kLanes; ++i) {
      const std::uint8_t bytes[2] = {first[i], second[i]};
      for (int t = 0; t < 2; ++t) {
        low->v[i][t] = static_cast<std::int16_t>(bytes[t] & 15);
        high->v[i][t] = static_cast<std::int16_t>(bytes[t] >> 4);
      }
    }
  }
  static Weights load_weights(const std::int16_t* p) { return {{p[0], p[1]}}; }
  static I add_pairs(I sum, Codes codes, Weights weights) {
    for (int i = 0; i < kLanes; ++i)
      sum.v[i] += codes.v[i][0] * weights.v[0] + codes.v[i][1] * weights.v[1];
    return sum;
  }
  static I no_ints() { return {}; }
  // Loads integers stored in the place of floats.
  static I load_ints(const float* p) {
    I out;
    __builtin_memcpy(out.v, p, sizeof out.v);
    return out;
  }
  static void store_ints(float* p, I a) { __builtin_memcpy(p, a.v, sizeof a.v); }
  static F to_float(I a) {
    return map([&](int i) { return static_cast<float>(a.v[i]); });
  }
  // Rounds half to even and clamps; the result for a NaN depends on the level.
  static void store_i16(std::int16_t* p, F a) {
    const F rounded = round(a);
    for (int i = 0; i < kLanes; ++i) {
      const float x = rounded.v[i];
      p[i] = static_cast<std::int16_t>(x > 32767.0f ? 32767 : x >= -32768.0f ? static_cast<int>(x) : -32768);
    }
  }
  static void store_f16(std::uint16_t* p, F a) {
    for (int i = 0; i < kLanes; ++i)
      p[i] = float_to_f16(a.v[i]);
  }
  static void store_bf16(std::uint16_t* p, F a) {
    for (int i = 0; i < kLanes; ++i)
      p[i] = float_to_bf16(a.v[i]);
  }
  // Dwords of two bf16 each: even elements to out[0], odd ones to out[1]; and back, rounding.
  static void load_bf16_pairs(const void* p, F* out) {
    std::uint16_t wide[2 * kLanes];
    __builtin_memcpy(wide, p, sizeof wide);
    out[0] = map([&](int i) { return bf16_to_float(wide[2 * i]); });
    out[1] = map([&](int i) { return bf16_to_float(wide[2 * i + 1]); });
  }
  static void store_bf16_pairs(void* p, F even, F odd) {
    std::uint16_t wide[2 * kLanes];
    for (int i = 0; i < kLanes; ++i) {
      wide[2 * i] = float_to_bf16(even.v[i]);
      wide[2 * i + 1] = float_to_bf16(odd.v[i]);
    }
    __builtin_memcpy(p, wide, sizeof wide);
  }
  // Stores pairs of values that bf16 holds exactly.
  static void store_exact_pairs(void* p, F even, F odd) {
    std::uint16_t wide[2 * kLanes];
    for (int i = 0; i < kLanes; ++i) {
      wide[2 * i] = static_cast<std::uint16_t>(float_to_bits(even.v[i]) >> 16);
      wide[2 * i + 1] = static_cast<std::uint16_t>(float_to_bits(odd.v[i]) >> 16);
    }
    __builtin_memcpy(p, wide, sizeof wide);
  }
  // Two vectors one behind the other, as bf16.
  static void store_bf16_both(void* p, F first, F second) {
    std::uint16_t wide[2 * kLanes];
    for (int i = 0; i < kLanes; ++i) {
      wide[i] = float_to_bf16(first.v[i]);
      wide[kLanes + i] = float_to_bf16(second.v[i]);
    }
    __builtin_memcpy(p, wide, sizeof wide);
  }
  // The nearest values that bf16 holds, of two as near the one away from zero. Finite values only.
  static F nearest_bf16(F a) {
    return map([&](int i) { return bits_to_float((float_to_bits(a.v[i]) + 0x8000u) & 0xffff0000u); });
  }
  // Rounds half to even; |a| <= 127.5 or the result is clamped.
  static void store_i8(std::int8_t* p, F a) {
    const F rounded = round(a);
    for (int i = 0; i < kLanes; ++i) {
      const float x = rounded.v[i];
      p[i] = static_cast<std::int8_t>(x > 127.0f ? 127 : x >= -127.0f ? static_cast<int>(x) : -127);
    }
  }
  static F add(F a, F b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F max(F a, F b) {
    return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F min(F a, F b) {
    return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(F a) {
    return map([&](int i) { return a.v[i] < 0.0f ? -a.v[i] : a.v[i]; });
  }
  // A test's level fuses them: it has the bits of avx512 and of arm64's levels.
#ifdef QUIRE_FUSED
  static F fma(F a, F b, F c) {
    return map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static F fnma(F a, F b, F c) {
    return map([&](int i) { return __builtin_fmaf(-a.v[i], b.v[i], c.v[i]); });
  }
#else
  static F fma(F a, F b, F c) {
    return map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static F fnma(F a, F b, F c) {
    return map([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
  }
#endif
  // Adding and subtracting 1.5 * 2^23 rounds |a| < 2^22 half to even.
  static F round(F a) {
    return map([&](int i) {
      const float shifted = a.v[i] + 12582912.0f;
      return shifted - 12582912.0f;
    });
  }
  // 2^n for integral n in [-126, 127].
  static F pow2(F n) {
    return map([&](int i) { return bits_to_float(static_cast<std::uint32_t>(static_cast<int>(n.v[i]) + 127) << 23); });
  }
  // a times 2^n.
  static F scale_pow2(F a, F n) {
    return mul(a, pow2(n));
  }
  // Lanes i >= n are replaced by `fill`.
  static F keep_first(F a, std::int64_t n, float fill) {
    return map([&](int i) { return i < n ? a.v[i] : fill; });
  }
  // a where test >= limit, else zero.
  static F zero_below(F a, F test, float limit) {
    return map([&](int i) { return test.v[i] >= limit ? a.v[i] : 0.0f; });
  }
  static float reduce_add(F a) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i)
        a.v[i] += a.v[i + width];
    }
    return a.v[0];
  }
  static float reduce_max(F a) {
    float out = a.v[0];
    for (int i = 1; i < kLanes; ++i)
      out = a.v[i] > out ? a.v[i] : out;
    return out;
  }
  static F swap_pairs(F a) {
    return map([&](int i) { return a.v[i ^ 1]; });
  }
  // p[0], p[0], p[1], p[1], ...
  static F load_doubled(const float* p) {
    return map([&](int i) { return p[i / 2]; });
  }
  // Negates the even lanes.
  static F negate_even(F a) {
    return map([&](int i) { return i % 2 == 0 ? -a.v[i] : a.v[i]; });
  }

  static B load_bytes(const void* p) {
    B out;
    __builtin_memcpy(out.v, p, sizeof out.v);
    return out;
  }
  // Byte kByte of every dword, as f32.
  template <int kByte>
  static F byte_of_four(B a) {
    return map([&](int i) { return static_cast<float>(a.v[4 * i + kByte]); });
  }
  static B low_nibbles(B a) {
    for (std::uint8_t& x : a.v)
      x &= 0xf;
    return a;
  }
  static B high_nibbles(B a) {
    for (std::uint8_t& x : a.v)
      x = static_cast<std::uint8_t>(x >> 4);
    return a;
  }
  // (plane moved right by shift) & kMask
  template <int kMask>
  static B take_bits(B plane, int shift) {
    for (std::uint8_t& x : plane.v)
      x = static_cast<std::uint8_t>((x >> shift) & kMask);
    return plane;
  }
  // table[a] of sixteen bytes; a < 16.
  static B lookup(B a, const std::uint8_t* table) {
    for (std::uint8_t& x : a.v)
      x = table[x];
    return a;
  }
  // a | ((plane moved left by shift, or right where negative) & kMask)
  template <int kMask>
  static B merge_bits(B a, B plane, int shift) {
    for (int i = 0; i < 4 * kLanes; ++i) {
      const int moved = shift >= 0 ? plane.v[i] << shift : plane.v[i] >> -shift;
      a.v[i] = static_cast<std::uint8_t>(a.v[i] | (moved & kMask));
    }
    return a;
  }
  // out[r][p]: per lane the sum over the groups [kBegin, kEnd) of four unsigned quants, kBits wide, of panel p times
  // four signed activations of row r, beginning with start_value(x[r], start). weights(p, g): the
  // quants of group g of panel p.
  template <int kBits, int kBegin, int kEnd, int kPanels, int kRows, class W>
  static void dot(const W& weights, const ActBlock* x, DotStart start, F (*out)[kPanels]) {
    for (int p = 0; p < kPanels; ++p) {
      B w[8];
      for (int g = kBegin; g < kEnd; ++g)
        w[g] = weights(p, g);
      for (int r = 0; r < kRows; ++r) {
        out[r][p] = map([&](int i) {
          int sum = start_value(x[r], start);
          for (int g = kBegin; g < kEnd; ++g) {
            for (int j = 0; j < 4; ++j)
              sum += w[g].v[4 * i + j] * x[r].quants[4 * g + j];
          }
          return static_cast<float>(sum);
        });
      }
    }
  }
};

}  // namespace
}  // namespace quire
