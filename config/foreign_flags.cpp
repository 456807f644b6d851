#include "config/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::string_view kHubOnly = "models are downloaded from a hub only: use --hf OWNER/NAME";
constexpr std::string_view kHubFile = "append the file to the repository: --hf OWNER/NAME:FILE.gguf";
constexpr std::string_view kHubRevision = "append the revision to the repository: --hf OWNER/NAME@REVISION";
constexpr std::string_view kHubCache = "set HF_HUB_CACHE in the environment";
constexpr std::string_view kHubToken = "set HF_TOKEN in the environment";
constexpr std::string_view kAlwaysOn = "always on";
constexpr std::string_view kFilePrecision = "weights keep the precision of their file";
constexpr std::string_view kPerRequest = "sampling is set per request; defaults come from the model's file";

constexpr std::array kFlags = std::to_array<ForeignFlag>({
    {"-hff", ForeignUse::kRefused, ForeignValue::kNone, kHubFile},
    {"--hf-file", ForeignUse::kRefused, ForeignValue::kNone, kHubFile},
    {"-hft", ForeignUse::kRefused, ForeignValue::kNone, kHubToken},
    {"--hf-token", ForeignUse::kRefused, ForeignValue::kNone, kHubToken},
    {"-mu", ForeignUse::kRefused, ForeignValue::kNone, kHubOnly},
    {"--model-url", ForeignUse::kRefused, ForeignValue::kNone, kHubOnly},
    {"--download-dir", ForeignUse::kRefused, ForeignValue::kNone, kHubCache},
    {"--offline", ForeignUse::kRefused, ForeignValue::kNone, "set HF_HUB_OFFLINE=1 in the environment"},
    {"-np", ForeignUse::kRenamed, ForeignValue::kNone, "--max-num-seqs"},
    {"-ngl", ForeignUse::kIgnored, ForeignValue::kOne, "the whole model is on one device, which --device chooses"},
    {"--gpu-layers", ForeignUse::kIgnored, ForeignValue::kOne,
     "the whole model is on one device, which --device chooses"},
    {"--n-gpu-layers", ForeignUse::kIgnored, ForeignValue::kOne,
     "the whole model is on one device, which --device chooses"},
    {"-ub", ForeignUse::kIgnored, ForeignValue::kOne, "--batch-size and scheduler.target_itl size a step"},
    {"--ubatch-size", ForeignUse::kIgnored, ForeignValue::kOne, "--batch-size and scheduler.target_itl size a step"},
    {"-tb", ForeignUse::kIgnored, ForeignValue::kOne, "--threads is for prompts too"},
    {"--threads-batch", ForeignUse::kIgnored, ForeignValue::kOne, "--threads is for prompts too"},
    {"--threads-http", ForeignUse::kRenamed, ForeignValue::kNone, "--server.threads"},
    {"-ctk", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache-dtype"},
    {"-ctv", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache-dtype"},
    {"--cache-type-k", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache-dtype"},
    {"--cache-type-v", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache-dtype"},
    {"-fa", ForeignUse::kIgnored, ForeignValue::kSwitch, kAlwaysOn},
    {"--flash-attn", ForeignUse::kIgnored, ForeignValue::kSwitch, kAlwaysOn},
    {"-cb", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--cont-batching", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--jinja", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--metrics", ForeignUse::kIgnored, ForeignValue::kNone, "always on; --security.metrics restricts access"},
    {"--slots", ForeignUse::kIgnored, ForeignValue::kNone, "GET /slots is always served"},
    {"--props", ForeignUse::kIgnored, ForeignValue::kNone, "GET /props is always served"},
    {"--embedding", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--embeddings", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--rerank", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--reranking", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--mlock", ForeignUse::kIgnored, ForeignValue::kNone, "weights are mapped once; --packed-cache makes starts fast"},
    {"--no-mmap", ForeignUse::kIgnored, ForeignValue::kNone, "weights are always mapped"},
    {"--temp", ForeignUse::kRefused, ForeignValue::kNone, kPerRequest},
    {"--top-k", ForeignUse::kRefused, ForeignValue::kNone, kPerRequest},
    {"--top-p", ForeignUse::kRefused, ForeignValue::kNone, kPerRequest},
    {"--min-p", ForeignUse::kRefused, ForeignValue::kNone, kPerRequest},
    {"--n-predict", ForeignUse::kRefused, ForeignValue::kNone, "use max_tokens in the request"},
    {"-n", ForeignUse::kRefused, ForeignValue::kNone, "use max_tokens in the request"},
    {"--system-prompt-file", ForeignUse::kRefused, ForeignValue::kNone, "send a system message in the request"},
    {"--lora", ForeignUse::kRefused, ForeignValue::kNone,
     "use --adapters NAME=PATH; requests select the adapter by NAME as their model"},
    {"--enable-lora", ForeignUse::kIgnored, ForeignValue::kNone, "--adapters NAME=PATH adds an adapter"},
    {"--lora-scaled", ForeignUse::kRefused, ForeignValue::kNone,
     "an adapter always uses the scale in its file: --adapters NAME=PATH"},
    {"--max-loras", ForeignUse::kRefused, ForeignValue::kNone, "use --adapter-memory"},
    {"--max-cpu-loras", ForeignUse::kRefused, ForeignValue::kNone, "use --adapter-memory"},
    {"--max-lora-rank", ForeignUse::kIgnored, ForeignValue::kOne, "ranks up to 256 are always supported"},
    {"-mm", ForeignUse::kRenamed, ForeignValue::kNone, "--mmproj"},
    {"--no-mmproj", ForeignUse::kRenamed, ForeignValue::kNone, "--model.uses-mmproj=false"},
    {"--no-mmproj-auto", ForeignUse::kRenamed, ForeignValue::kNone, "--model.uses-mmproj=false"},
    {"--mmproj-auto", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--allowed-media-domains", ForeignUse::kRenamed, ForeignValue::kNone, "--media.fetch"},
    {"--allowed-local-media-path", ForeignUse::kRenamed, ForeignValue::kNone, "--media.root"},
    {"--media-path", ForeignUse::kRenamed, ForeignValue::kNone, "--media.root"},
    {"-md", ForeignUse::kRenamed, ForeignValue::kNone, "--model-draft"},
    {"--api-key-file", ForeignUse::kRefused, ForeignValue::kNone, "use security.keys with 'file'"},
    {"--ssl-key-file", ForeignUse::kRenamed, ForeignValue::kNone, "--server.tls.key"},
    {"--ssl-cert-file", ForeignUse::kRenamed, ForeignValue::kNone, "--server.tls.certificate"},
    {"--ssl-keyfile", ForeignUse::kRenamed, ForeignValue::kNone, "--server.tls.key"},
    {"--ssl-certfile", ForeignUse::kRenamed, ForeignValue::kNone, "--server.tls.certificate"},
    {"--ssl-ca-certs", ForeignUse::kRenamed, ForeignValue::kNone, "--server.tls.client-ca"},
    {"--timeout", ForeignUse::kRefused, ForeignValue::kNone, "use --server.timeout.write"},
    {"--timeout-keep-alive", ForeignUse::kRefused, ForeignValue::kNone, "use --server.timeout.idle"},
    {"--no-webui", ForeignUse::kIgnored, ForeignValue::kNone, "the page at / is always served"},
    {"--path", ForeignUse::kRefused, ForeignValue::kNone, "the page at / is built in"},
    {"--dtype", ForeignUse::kIgnored, ForeignValue::kOne, kFilePrecision},
    {"--quantization", ForeignUse::kIgnored, ForeignValue::kOne, kFilePrecision},
    {"--load-format", ForeignUse::kIgnored, ForeignValue::kOne, "the format is detected from the file"},
    {"--tokenizer", ForeignUse::kRefused, ForeignValue::kNone,
     "the tokenizer is read from the model's file or directory"},
    {"--trust-remote-code", ForeignUse::kIgnored, ForeignValue::kNone, "code in models is never run"},
    {"--revision", ForeignUse::kRefused, ForeignValue::kNone, kHubRevision},
    {"--gpu-memory-utilization", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache-memory"},
    {"--num-gpu-blocks-override", ForeignUse::kRefused, ForeignValue::kNone, "use --num-blocks"},
    {"--swap-space", ForeignUse::kRefused, ForeignValue::kNone, "use --kv-cache.host-tier-bytes"},
    {"--cpu-offload-gb", ForeignUse::kRefused, ForeignValue::kNone,
     "use --kv-cache.host-tier-bytes for blocks; weights are not offloaded"},
    {"--enable-prefix-caching", ForeignUse::kIgnored, ForeignValue::kNone, "on by default: --kv-cache.prefix-caching"},
    {"--no-enable-prefix-caching", ForeignUse::kRenamed, ForeignValue::kNone, "--kv-cache.prefix-caching=false"},
    {"--enable-chunked-prefill", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--scheduling-policy", ForeignUse::kRenamed, ForeignValue::kNone, "--scheduler.policy"},
    {"--tool-call-parser", ForeignUse::kIgnored, ForeignValue::kOne,
     "the format of calls is detected from the chat template; --tool-format forces one"},
    {"--enable-auto-tool-choice", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--reasoning-parser", ForeignUse::kIgnored, ForeignValue::kOne, "reasoning is detected from the chat template"},
    {"--enforce-eager", ForeignUse::kIgnored, ForeignValue::kNone, "backend.cuda.graphs switches graphs off"},
    {"-tp", ForeignUse::kRenamed, ForeignValue::kNone, "--tensor-parallel-size"},
    {"--pipeline-parallel-size", ForeignUse::kRefused, ForeignValue::kNone,
     "layers are not divided among GPUs; use --tensor-parallel-size"},
    {"--data-parallel-size", ForeignUse::kRefused, ForeignValue::kNone,
     "run several daemons behind a proxy (fleet.md)"},
    {"--disable-log-requests", ForeignUse::kRenamed, ForeignValue::kNone, "--log.access=off"},
    {"--allowed-origins", ForeignUse::kRefused, ForeignValue::kNone, "use --security.cors-origins"},
    {"--uds", ForeignUse::kRenamed, ForeignValue::kNone, "--server.unix-socket"},
    {"--no-warmup", ForeignUse::kIgnored, ForeignValue::kNone, "the model is warm once it is ready"},
    {"--warmup", ForeignUse::kIgnored, ForeignValue::kNone, "the model is warm once it is ready"},
    {"--no-context-shift", ForeignUse::kIgnored, ForeignValue::kNone, "a context is never shifted"},
    {"--log-disable", ForeignUse::kIgnored, ForeignValue::kNone, "--log-level off"},
    {"--swa-full", ForeignUse::kIgnored, ForeignValue::kNone, "windows are cached exactly"},
    {"--kv-unified", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"-kvu", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--cache-prompt", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--disable-log-stats", ForeignUse::kIgnored, ForeignValue::kNone,
     "the log has no statistics; GET /metrics has them"},
    {"--disable-uvicorn-access-log", ForeignUse::kIgnored, ForeignValue::kNone, "--log.access"},
    {"--no-enable-log-requests", ForeignUse::kIgnored, ForeignValue::kNone, "--log.access"},
    {"--async-scheduling", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--enable-prompt-tokens-details", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--enable-sleep-mode", ForeignUse::kIgnored, ForeignValue::kNone, kAlwaysOn},
    {"--numa", ForeignUse::kIgnored, ForeignValue::kOne, "memory is placed by the kernel"},
    {"--poll", ForeignUse::kIgnored, ForeignValue::kOne, "compute threads wait as they need"},
    {"--prio", ForeignUse::kIgnored, ForeignValue::kOne, "the process keeps its priority"},
    {"--cache-reuse", ForeignUse::kIgnored, ForeignValue::kOne, "prefixes are found by content"},
    {"--reasoning-format", ForeignUse::kIgnored, ForeignValue::kOne, "reasoning is detected from the chat template"},
    {"--slot-prompt-similarity", ForeignUse::kIgnored, ForeignValue::kOne, "prefixes are found by content"},
    {"-sps", ForeignUse::kIgnored, ForeignValue::kOne, "prefixes are found by content"},
    {"--uvicorn-log-level", ForeignUse::kIgnored, ForeignValue::kOne, "--log-level"},
    {"--max-seq-len-to-capture", ForeignUse::kIgnored, ForeignValue::kOne, "graphs are made as they are needed"},
    {"--limit-mm-per-prompt.image", ForeignUse::kRenamed, ForeignValue::kNone, "--limit-mm-per-prompt"},
    {"--limit-mm-per-prompt.video", ForeignUse::kIgnored, ForeignValue::kOne, "videos are not served"},
    {"--limit-mm-per-prompt.audio", ForeignUse::kIgnored, ForeignValue::kOne, "audio is not served"},
    {"--task", ForeignUse::kIgnored, ForeignValue::kOne, "the task is detected from the model"},
    {"--runner", ForeignUse::kIgnored, ForeignValue::kOne, "the task is detected from the model"},
    {"--convert", ForeignUse::kIgnored, ForeignValue::kOne, "the task is detected from the model"},
    {"--distributed-executor-backend", ForeignUse::kIgnored, ForeignValue::kOne, "one process has all devices"},
    {"--api-server-count", ForeignUse::kIgnored, ForeignValue::kOne, "--server.threads"},
    {"--generation-config", ForeignUse::kIgnored, ForeignValue::kOne,
     "defaults of sampling come from the model's files"},
    {"--ctx-checkpoints", ForeignUse::kIgnored, ForeignValue::kOne, "states are kept at chosen tokens"},
    {"--cache-ram", ForeignUse::kIgnored, ForeignValue::kOne, "--kv-cache.host-tier-bytes"},
    {"--reasoning-budget", ForeignUse::kRefused, ForeignValue::kNone, "use thinking_budget in the request"},
    {"--split-mode", ForeignUse::kRefused, ForeignValue::kNone, "use --tensor-parallel-size"},
    {"-sm", ForeignUse::kRefused, ForeignValue::kNone, "use --tensor-parallel-size"},
    {"--tensor-split", ForeignUse::kRefused, ForeignValue::kNone, "use --tensor-parallel-size"},
    {"-ts", ForeignUse::kRefused, ForeignValue::kNone, "use --tensor-parallel-size"},
    {"--main-gpu", ForeignUse::kRefused, ForeignValue::kNone, "use --device"},
    {"-mg", ForeignUse::kRefused, ForeignValue::kNone, "use --device"},
    {"-pp", ForeignUse::kRefused, ForeignValue::kNone, "layers are not divided among GPUs; use --tensor-parallel-size"},
    {"--override-kv", ForeignUse::kRefused, ForeignValue::kNone, "keys of the file are used as they are"},
    {"--rope-scaling", ForeignUse::kRefused, ForeignValue::kNone, "the file says how positions are scaled"},
    {"--rope-freq-base", ForeignUse::kRefused, ForeignValue::kNone, "the file says how positions are scaled"},
    {"--rope-freq-scale", ForeignUse::kRefused, ForeignValue::kNone, "the file says how positions are scaled"},
    {"--hf-overrides", ForeignUse::kRefused, ForeignValue::kNone, "edit config.json of the directory"},
    {"--n-cpu-moe", ForeignUse::kRefused, ForeignValue::kNone,
     "the whole model is on one device, which --device chooses"},
    {"-ncmoe", ForeignUse::kRefused, ForeignValue::kNone, "the whole model is on one device, which --device chooses"},
    {"--cpu-moe", ForeignUse::kRefused, ForeignValue::kNone,
     "the whole model is on one device, which --device chooses"},
    {"-ot", ForeignUse::kRefused, ForeignValue::kNone, "the whole model is on one device, which --device chooses"},
    {"--override-tensor", ForeignUse::kRefused, ForeignValue::kNone,
     "the whole model is on one device, which --device chooses"},
    {"--verbose", ForeignUse::kRenamed, ForeignValue::kNone, "--log-level=debug"},
});

const ForeignFlag* foreign_flag(std::string_view name) {
  const auto found =
      std::find_if(kFlags.begin(), kFlags.end(), [&](const ForeignFlag& flag) { return flag.name == name; });
  return found == kFlags.end() ? nullptr : &*found;
}

bool is_switch_value(std::string_view word) {
  constexpr std::array<std::string_view, 7> kValues = {"on", "off", "auto", "0", "1", "true", "false"};
  return std::find(kValues.begin(), kValues.end(), word) != kValues.end();
}

// Number of words after an ignored flag that belong to it.
std::size_t num_values(const ForeignFlag& flag, bool has_value, std::span<const std::string> rest) {
  if (has_value || rest.empty() || flag.value == ForeignValue::kNone) return 0;
  return flag.value == ForeignValue::kOne || is_switch_value(rest.front()) ? 1 : 0;
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() {
  return kFlags;
}

OwnWords own_words(std::span<const std::string> words) {
  OwnWords own;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const ForeignFlag* const flag = name.starts_with('-') ? foreign_flag(name) : nullptr;
    if (flag == nullptr) {
      own.words.push_back(word);
    } else if (flag->use == ForeignUse::kRenamed) {
      own.words.push_back(std::string(flag->text) + (equals == std::string::npos ? "" : word.substr(equals)));
    } else if (flag->use == ForeignUse::kIgnored) {
      own.ignored.push_back(fmt::format("{}: {}", name, flag->text));
      i += num_values(*flag, equals != std::string::npos, words.subspan(i + 1));
    } else {
      own.refused.push_back(fmt::format("option '{}' is another server's: {}", name, flag->text));
    }
  }
  return own;
}

}  // namespace quire
