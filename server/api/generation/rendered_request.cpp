#include "server/api/generation/generation_operation.h"

#include <cmath>

namespace quire {

namespace {

Json sampling_json(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  const auto shortest = [](float value) { return std::round(static_cast<double>(value) * 1e6) / 1e6; };
  Json json{{"n", request.num_choices},
            {"max_tokens", sampling.max_tokens},
            {"min_tokens", sampling.min_tokens},
            {"temperature", shortest(sampling.temperature)},
            {"top_p", shortest(sampling.top_p)},
            {"top_k", sampling.top_k},
            {"min_p", shortest(sampling.min_p)},
            {"repetition_penalty", shortest(sampling.repetition_penalty)},
            {"frequency_penalty", shortest(sampling.frequency_penalty)},
            {"presence_penalty", shortest(sampling.presence_penalty)},
            {"ignore_eos", sampling.ignore_eos},
            {"stop_token_ids", token_ids_json(sampling.stop_token_ids)}};
  if (sampling.seed) json["seed"] = *sampling.seed;
  return json;
}

}  // namespace

Result<std::unique_ptr<Operation>> rendered(Result<std::unique_ptr<Operation>> operation, const Call& call,
                                            bool is_list) {
  if (!operation) return operation;
  const std::string model = (*operation)->summary().model;
  Json list = Json::array();
  for (const auto& request : (*operation)->requests()) {
    Json entry{{"request_id", call.request_id},
               {"model", model},
               {"token_ids", token_ids_json(request->prompt)},
               {"sampling_params", sampling_json(*request)},
               {"stream", (*operation)->streams()}};
    for (const MediaRun& run : request->media)
      entry["mm_placeholders"].push_back({{"offset", run.begin}, {"length", run.num_rows}});
    if (!request->cache_salt.empty()) entry["cache_salt"] = request->cache_salt;
    if (request->priority != 0) entry["priority"] = request->priority;
    list.push_back(std::move(entry));
  }
  return std::make_unique<ReadyOperation>(dump_json(is_list ? list : list.front()));
}

}  // namespace quire
