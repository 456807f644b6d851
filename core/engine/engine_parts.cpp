#include "core/engine/engine_parts.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

ModelIdentity identity_of(ModelIdentity identity, Executor& executor) {
  const KvLayout& layout = executor.storage().layout();
  identity.arithmetic = executor.name();
  identity.block_size = layout.block_size;
  identity.cache_type = layout.dtype;
  identity.has_window_parts = executor.window_storage() != nullptr;
  return identity;
}

std::int64_t num_states(Executor& executor) {
  return executor.states() == nullptr ? 0 : executor.states()->layout().num_states;
}

KvWindow window_of(Executor& executor) {
  if (executor.window_storage() == nullptr) return {};
  return {.num_tokens = executor.model().kv_split().window,
          .num_parts = executor.window_storage()->layout().num_blocks};
}

// Completes the options with limits of the model and its memory.
SchedulerOptions options_for(Executor& executor, SchedulerOptions options) {
  const Model& model = executor.model();
  const std::int64_t context = model.max_context();
  options.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, context) : context;
  options.whole_prompts = !model.is_causal();
  if (executor.states() != nullptr)
    options.max_num_seqs =
        static_cast<std::int32_t>(std::min<std::int64_t>(options.max_num_seqs, num_states(executor)));
  return options;
}

Step make_step(const SchedulerOptions& options, const Model& model, const KvCache& kv, const Scheduler& scheduler) {
  return {kv.block_size(),      scheduler.max_step_tokens(),
          options.max_num_seqs, options.max_num_seqs * kv.blocks_for(scheduler.max_model_len()),
          model.vocab_size(),   kv.window().num_parts() > 0 ? &kv.window() : nullptr};
}

}  // namespace

EngineParts::EngineParts(std::unique_ptr<Executor> an_executor, std::vector<TokenId> ends,
                         const EngineOptions& all_options, RequestQueue& queue, SlotOrders& orders)
    : executor(std::move(an_executor)),
      end_of_generation(std::move(ends)),
      options(all_options),
      identity(identity_of(options.identity, *executor)),
      fingerprint{identity.key().low, identity.key().high},
      kv(executor->storage().layout().num_blocks, static_cast<std::int32_t>(executor->storage().layout().block_size),
         options.kv_cache.enable_prefix_caching && executor->model().is_causal(), content_hash, identity.text(),
         num_states(*executor), window_of(*executor)),
      scheduler(options_for(*executor, options.scheduler), kv),
      drafting(*executor, kv, scheduler, options.scheduler, {options.speculation, options.make_drafter},
               end_of_generation),
      media(options.encoder, options.media_bytes, *executor, kv, scheduler, options.scheduler),
      tiers(kv, scheduler, *executor,
            {.kv_cache = options.kv_cache,
             .shared_store = options.shared_store,
             .fingerprint = fingerprint,
             .keeps_slots = options.keeps_slots,
             .wake = [&queue] { queue.wake(); }}),
      slots(options.keeps_slots && kv.prefix_caching() ? options.scheduler.max_num_seqs : 0, orders, kv, tiers.lower(),
            fingerprint, no_memory),
      steps{.both = {make_step(options.scheduler, executor->model(), kv, scheduler),
                     make_step(options.scheduler, executor->model(), kv, scheduler)}} {
  kv.set_retained_share(options.kv_cache.retained_share);
  if (options.cache_events != nullptr) kv.mutable_index().log().set_sink(options.cache_events.get());
}

}  // namespace quire
