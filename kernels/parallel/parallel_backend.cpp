#include "kernels/parallel/parallel_backend.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/check.h"
#include "kernels/device_error.h"

namespace quire {
namespace {

[[noreturn]] void of_a_rank_alone() {
  check_failed("rank(i).operation()", "operations on several devices are those of each", __FILE__, __LINE__);
}

// A failure of the rank itself, not one that came of another rank's.
bool is_cause(const std::exception_ptr& failure) {
  if (failure == nullptr) return false;
  try {
    std::rethrow_exception(failure);
  } catch (const RendezvousGivenUp&) {
    return false;
  } catch (...) {
    return true;
  }
}

}  // namespace

KvLayout layout_of_rank(const KvLayout& layout, int num_ranks) {
  const auto divided = [&](std::int64_t heads) {
    QUIRE_CHECK(heads % num_ranks == 0, "heads that cannot be divided among the devices");
    return heads / num_ranks;
  };
  KvLayout out = layout;
  out.num_kv_heads = layout.layers.empty() ? divided(layout.num_kv_heads) : layout.num_kv_heads;
  for (KvLayerShape& layer : out.layers)
    layer.num_heads = divided(layer.num_heads);
  return out;
}

ParallelKvStorage::ParallelKvStorage(const KvLayout& layout, std::vector<std::unique_ptr<KvStorage>> ranks)
    : layout_(layout), ranks_(std::move(ranks)) {
  for (const auto& rank : ranks_)
    block_bytes_ += rank->block_bytes();
}

void ParallelKvStorage::copy_block(std::int32_t source, std::int32_t destination) {
  for (const auto& rank : ranks_)
    rank->copy_block(source, destination);
}

void ParallelKvStorage::read_block(std::int32_t block, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == block_bytes_, "a KV block of another size");
  for (const auto& rank : ranks_) {
    rank->read_block(block, out.first(rank->block_bytes()));
    out = out.subspan(rank->block_bytes());
  }
}

void ParallelKvStorage::write_block(std::int32_t block, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == block_bytes_, "a KV block of another size");
  for (const auto& rank : ranks_) {
    rank->write_block(block, in.first(rank->block_bytes()));
    in = in.subspan(rank->block_bytes());
  }
}

ParallelBackend::ParallelBackend(std::vector<Rank> ranks, std::shared_ptr<Rendezvous> meeting)
    : ranks_(std::move(ranks)),
      meeting_(std::move(meeting)),
      threads_(static_cast<int>(ranks_.size())),
      failures_(ranks_.size()) {
  QUIRE_CHECK(!ranks_.empty(), "a model on no device");
}

// Waits for all devices: work enqueued on one may use the memory of another.
ParallelBackend::~ParallelBackend() {
  try {
    synchronize();
  } catch (const DeviceError&) {
  }
}

std::string ParallelBackend::name() const {
  return rank(0).name() + "/tp" + std::to_string(num_ranks());
}

void ParallelBackend::run(const std::function<void(int)>& body) {
  meeting_->restart();
  if (has_failed_) {
    synchronize();
    for (const Rank& rank : ranks_) {
      if (rank.sum != nullptr) rank.sum->restart();
    }
    has_failed_ = false;
  }
  threads_.run([&](int rank) {
    std::exception_ptr& failure = failures_[static_cast<std::size_t>(rank)];
    failure = nullptr;
    try {
      body(rank);
    } catch (...) {
      failure = std::current_exception();
      meeting_->give_up();
    }
  });
  const auto cause = std::ranges::find_if(failures_, is_cause);
  if (cause == failures_.end()) return;
  has_failed_ = true;
  std::rethrow_exception(*cause);
}

void ParallelBackend::synchronize() {
  std::exception_ptr failure;
  for (const Rank& rank : ranks_) {
    try {
      rank.backend->synchronize();
    } catch (const DeviceError&) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

std::unique_ptr<KvStorage> ParallelBackend::allocate_kv(const KvLayout& layout) {
  const KvLayout part = layout_of_rank(layout, num_ranks());
  std::vector<std::unique_ptr<KvStorage>> parts;
  try {
    for (const Rank& rank : ranks_)
      parts.push_back(rank.backend->allocate_kv(part));
  } catch (const DeviceError&) {
    synchronize();  // enqueued work may use the memory that is freed
    throw;
  }
  return std::make_unique<ParallelKvStorage>(layout, std::move(parts));
}

std::size_t ParallelBackend::kv_block_bytes(const KvLayout& layout) const {
  return rank(0).kv_block_bytes(layout_of_rank(layout, num_ranks())) * ranks_.size();
}

std::unique_ptr<Linear> ParallelBackend::load_linear(std::span<const WeightSource> /*parts*/,
                                                     std::span<const float> /*bias*/) {
  of_a_rank_alone();
}
std::unique_ptr<Linear> ParallelBackend::load_linear_beside(const WeightSource& /*matrix*/) {
  of_a_rank_alone();
}
std::unique_ptr<Embedding> ParallelBackend::load_embedding(const WeightSource& /*table*/) {
  of_a_rank_alone();
}
std::unique_ptr<Buffer> ParallelBackend::upload(std::span<const float> /*values*/) {
  of_a_rank_alone();
}
std::unique_ptr<Buffer> ParallelBackend::allocate(std::int64_t /*num_floats*/) {
  of_a_rank_alone();
}
void ParallelBackend::embed(const Embedding& /*table*/, std::span<const std::int32_t> /*ids*/, MatrixView /*out*/) {
  of_a_rank_alone();
}
void ParallelBackend::rms_norm(MatrixView /*x*/, const float* /*weight*/, float /*eps*/, MatrixView /*out*/) {
  of_a_rank_alone();
}
void ParallelBackend::head_rms_norm(MatrixView /*x*/, std::int64_t /*num_heads*/, std::int64_t /*head_dim*/,
                                    const float* /*weight*/, float /*eps*/) {
  of_a_rank_alone();
}
void ParallelBackend::linear(const Linear& /*weights*/, const ProductInput& /*x*/, MatrixView /*out*/,
                             bool /*accumulate*/) {
  of_a_rank_alone();
}
void ParallelBackend::rope_angles(const RopePositions& /*positions*/, std::span<const double> /*inv_freq*/,
                                  float /*scale*/, MatrixView /*cos*/, MatrixView /*sin*/) {
  of_a_rank_alone();
}
void ParallelBackend::rope(MatrixView /*x*/, std::int64_t /*num_heads*/, std::int64_t /*head_dim*/, RopeStyle /*style*/,
                           MatrixView /*cos*/, MatrixView /*sin*/) {
  of_a_rank_alone();
}
void ParallelBackend::store_kv(KvStorage& /*kv*/, std::int64_t /*layer*/, const AttentionBatch& /*batch*/,
                               MatrixView /*k*/, MatrixView /*v*/) {
  of_a_rank_alone();
}
void ParallelBackend::attention(const KvStorage& /*kv*/, std::int64_t /*layer*/, const AttentionBatch& /*batch*/,
                                MatrixView /*q*/, std::int64_t /*num_heads*/, float /*scale*/, MatrixView /*out*/) {
  of_a_rank_alone();
}
void ParallelBackend::put_rows(std::span<const float> /*values*/, MatrixView /*out*/) {
  of_a_rank_alone();
}
void ParallelBackend::gather_rows(MatrixView /*x*/, std::span<const std::int32_t> /*rows*/, MatrixView /*out*/) {
  of_a_rank_alone();
}

}  // namespace quire
