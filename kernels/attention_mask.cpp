#include "kernels/attention_mask.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/backend.h"

namespace quire {

TokenRange seen_by(const AttentionOptions& options, std::int64_t position, std::int64_t context) {
  TokenRange seen{0, options.causal ? position + 1 : context};
  if (options.window > 0) {
    const std::int64_t reach = options.causal ? options.window - 1 : options.window / 2;
    seen.begin = std::max<std::int64_t>(0, position - reach);
    if (!options.causal) seen.end = std::min(context, position + reach + 1);
  }
  if (options.chunk > 0) seen.begin = std::max(seen.begin, position / options.chunk * options.chunk);
  return seen;
}

TokenRange seen_by_row(const AttentionOptions& options, const AttentionBatch& batch, std::int64_t row,
                       std::int64_t position, std::int64_t context) {
  TokenRange seen = seen_by(options, position, context);
  if (!batch.seen_end.empty())
    seen.end = std::max(seen.end, std::min<std::int64_t>(batch.seen_end[static_cast<std::size_t>(row)], context));
  return seen;
}

float alibi_slope(float largest_exponent, std::int64_t head, std::int64_t num_heads) {
  const auto power = std::bit_floor(static_cast<std::uint64_t>(num_heads));
  const auto whole = static_cast<double>(power);
  const double base = std::pow(2.0, -static_cast<double>(largest_exponent) / whole);
  const double half = std::pow(2.0, -static_cast<double>(largest_exponent) / 2.0 / whole);
  const auto h = static_cast<double>(head);
  return static_cast<float>(h < whole ? std::pow(base, h + 1.0) : std::pow(half, 2.0 * (h - whole) + 1.0));
}

}  // namespace quire
