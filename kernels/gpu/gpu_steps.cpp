#include "kernels/gpu/gpu_steps.h"

#include <algorithm>
#include <utility>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace quire::gpu {

GpuSteps::GpuSteps(GatheringDevice& device, StepUploads& uploads, HostResults& results)
    : device_(device),
      uploads_(uploads),
      results_(results),
      fill_(device.kernel("fill_tokens")),
      enqueued_(device.create_event()),
      draw_(device, uploads),
      moves_(device) {
  for (Set& set : sets_)
    set.done = device.create_event();
}

GpuSteps::~GpuSteps() {
  for (const Set& set : sets_) {
    device_.free_host(set.host_drawn);
    device_.free_host(set.host_scored);
  }
}

void GpuSteps::reserve(std::int64_t max_draws, std::int64_t max_scores, std::int64_t vocab_size) {
  draw_.reserve(vocab_size);
  for (Set& set : sets_)
    take_results(set, static_cast<std::size_t>(max_draws), static_cast<std::size_t>(max_scores));
}

const GpuSteps::Set& GpuSteps::set_of(std::int64_t step) const {
  QUIRE_CHECK(step >= 0 && step <= number_ && step > number_ - kInFlight, "a step that is not one of the last two");
  return sets_[static_cast<std::size_t>(step % kInFlight)];
}

std::int64_t GpuSteps::begin() {
  if (number_ >= 0) end();
  ++number_;
  Set& set = current();
  set.is_open = true;
  set.num_drawn = 0;
  set.num_scored = 0;
  device_.synchronize(set.done);
  uploads_.begin(static_cast<std::size_t>(number_ % kInFlight));
  results_.begin(static_cast<std::size_t>(number_ % kInFlight));
  moves_.begin(static_cast<std::size_t>(number_ % kInFlight));
  return number_;
}

void GpuSteps::draw(MatrixView logits, std::int64_t num_places, std::span<const TokenDraw> draws,
                    std::span<const TokenScore> scores) {
  Set& set = current();
  set.num_drawn = static_cast<std::size_t>(num_places);
  set.num_scored = scores.size();
  take_results(set, set.num_drawn, set.num_scored);
  auto* const drawn = set.drawn.as<TokenDrawn>();
  auto* const scored = set.scored.as<TokenScored>();
  draw_.draw(logits, draws, drawn);
  draw_.score(logits, scores, drawn, scored);
  if (!draws.empty())
    device_.copy_to_host(set.host_drawn, set.drawn.data(), set.num_drawn * sizeof(TokenDrawn), Stream::kCompute);
  if (!scores.empty())
    device_.copy_to_host(set.host_scored, set.scored.data(), set.num_scored * sizeof(TokenScored), Stream::kCompute);
}

void GpuSteps::put_drawn(std::int64_t place, std::int32_t token) {
  const Set& set = current();
  QUIRE_CHECK(place >= 0 && std::cmp_less(place, set.num_drawn), "a drawn token without a place");
  const TokenDrawn drawn{token, TokenDrawn::Status::kDrawn};
  uploads_.send(std::as_bytes(std::span(&drawn, 1)), set.drawn.data() + static_cast<std::size_t>(place) * sizeof drawn);
}

void GpuSteps::take_results(Set& set, std::size_t num_draws, std::size_t num_scores) {
  grow(set.drawn, set.host_drawn, num_draws * sizeof(TokenDrawn));
  grow(set.scored, set.host_scored, num_scores * sizeof(TokenScored));
}

void GpuSteps::grow(DeviceMemory& memory, std::byte*& host, std::size_t bytes) {
  if (memory.bytes() >= bytes) return;
  gpu::grow(device_, memory, bytes, "drawn tokens");
  device_.free_host(std::exchange(host, nullptr));
  host = device_.allocate_host(bytes);
}

void GpuSteps::wait_enqueued() {
  device_.record(enqueued_, Stream::kCompute);
  device_.synchronize(enqueued_);
}

void GpuSteps::end() {
  Set& set = current();
  if (!std::exchange(set.is_open, false)) return;
  device_.record(set.done, Stream::kCompute);
}

void GpuSteps::wait(std::int64_t step) {
  const Set& set = set_of(step);
  if (set.is_open) end();
  device_.synchronize(set.done);
  moves_.finish(static_cast<std::size_t>(step % kInFlight));
}

TransferTimes GpuSteps::transfer_times(std::int64_t step) const {
  QUIRE_CHECK(step <= number_ && step > number_ - kInFlight, "a step that is not one of the last two");
  return moves_.times(static_cast<std::size_t>(step % kInFlight));
}

std::span<const TokenDrawn> GpuSteps::drawn(std::int64_t step) const {
  const Set& set = set_of(step);
  return {reinterpret_cast<const TokenDrawn*>(set.host_drawn), set.num_drawn};
}

std::span<const TokenScored> GpuSteps::scored(std::int64_t step) const {
  const Set& set = set_of(step);
  return {reinterpret_cast<const TokenScored*>(set.host_scored), set.num_scored};
}

const std::int32_t* GpuSteps::known_ids(std::span<const std::int32_t> ids, std::int64_t num_rows) {
  const std::int32_t* const sent = uploads_.put(ids);
  if (std::ranges::none_of(ids, [](std::int32_t id) { return id < 0; })) return sent;
  QUIRE_CHECK(number_ >= 1, "a token of a step before the first one");
  auto* const known = reinterpret_cast<std::int32_t*>(uploads_.room(ids.size_bytes()));
  const auto count = static_cast<std::int64_t>(ids.size());
  const FillTokensArgs args{.ids = sent,
                            .drawn = set_of(number_ - 1).drawn.as<TokenDrawn>(),
                            .count = count,
                            .limit = num_rows,
                            .out = known};
  device_.launch(fill_, {.x = (count + FillTokens::kThreads - 1) / FillTokens::kThreads}, args);
  return known;
}

}  // namespace quire::gpu
