// EngineParts: the parts of an engine below its requests and steps, in the order in which they build on each other.
// Engine thread only. Drafting, media, tiers and slots are optional: without their options they do nothing.
#pragma once

#include <memory>
#include <vector>

#include "core/draft/drafting.h"
#include "core/engine/engine.h"
#include "core/engine/prompt_media.h"
#include "core/engine/slots.h"
#include "core/engine/step.h"
#include "core/engine/tiers.h"
#include "core/executor/executor.h"
#include "core/kv/kv_cache.h"
#include "core/sched/scheduler.h"

namespace quire {

struct EngineParts {
  // Throws StartupError: see Engine. queue and orders must outlive it; tiers wake the queue.
  EngineParts(std::unique_ptr<Executor> an_executor, std::vector<TokenId> ends, const EngineOptions& all_options,
              RequestQueue& queue, SlotOrders& orders);

  const std::unique_ptr<Executor> executor;
  const std::vector<TokenId> end_of_generation;
  const EngineOptions options;
  const ModelIdentity identity;
  const ChainKey fingerprint;  // its key
  const SharedError no_memory = std::make_shared<const Error>(out_of_memory());
  KvCache kv;
  Scheduler scheduler;
  Drafting drafting;
  PromptMedia media;
  Tiers tiers;
  Slots slots;
  Steps steps;
};

}  // namespace quire
