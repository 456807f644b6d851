#include "config/foreign_flags.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::string_view kHubOnly = "models are downloaded from a hub only: use --hf OWNER/NAME";
constexpr std::string_view kHubFile = "append the file to the repository: --hf OWNER/NAME:FILE.gguf";
constexpr std::string_view kHubRevision = "append the revision to the repository: --hf OWNER/NAME@REVISION";
constexpr std::string_view kHubCache = "set HF_HUB_CACHE in the environment";
constexpr std::string_view kHubToken = "set HF_TOKEN in the environment";
constexpr std::string_view kAlwaysOn = "always on; leave it out";
constexpr std::string_view kFilePrecision = "weights keep the precision of their file";
constexpr std::string_view kPerRequest = "sampling is set per request; defaults come from the model's file";

constexpr std::array kFlags = std::to_array<ForeignFlag>({
    {"-hff", kHubFile},
    {"--hf-file", kHubFile},
    {"-hft", kHubToken},
    {"--hf-token", kHubToken},
    {"-mu", kHubOnly},
    {"--model-url", kHubOnly},
    {"--download-dir", kHubCache},
    {"--offline", "set HF_HUB_OFFLINE=1 in the environment"},
    {"-np", "use --max-num-seqs"},
    {"-ngl", "use --device"},
    {"--gpu-layers", "use --device"},
    {"--n-gpu-layers", "use --device"},
    {"-ub", "use --max-num-batched-tokens"},
    {"--ubatch-size", "use --max-num-batched-tokens"},
    {"-tb", "use --threads"},
    {"--threads-batch", "use --threads"},
    {"--threads-http", "use --server.threads"},
    {"-ctk", "use --kv-cache-dtype"},
    {"-ctv", "use --kv-cache-dtype"},
    {"--cache-type-k", "use --kv-cache-dtype"},
    {"--cache-type-v", "use --kv-cache-dtype"},
    {"-fa", kAlwaysOn},
    {"--flash-attn", kAlwaysOn},
    {"-cb", kAlwaysOn},
    {"--cont-batching", kAlwaysOn},
    {"--jinja", kAlwaysOn},
    {"--metrics", "always on; --security.metrics restricts access"},
    {"--slots", "GET /slots is always served"},
    {"--props", "GET /props is always served"},
    {"--embedding", kAlwaysOn},
    {"--embeddings", kAlwaysOn},
    {"--rerank", kAlwaysOn},
    {"--reranking", kAlwaysOn},
    {"--mlock", "weights are mapped once; use --packed-cache for fast starts"},
    {"--no-mmap", "weights are always mapped; leave it out"},
    {"--temp", kPerRequest},
    {"--top-k", kPerRequest},
    {"--top-p", kPerRequest},
    {"--min-p", kPerRequest},
    {"--n-predict", "use max_tokens in the request"},
    {"-n", "use max_tokens in the request"},
    {"--system-prompt-file", "send a system message in the request"},
    {"--lora", "use --adapters NAME=PATH; requests select the adapter by NAME as their model"},
    {"--enable-lora", "use --adapters NAME=PATH; requests select an adapter by NAME as their model"},
    {"--lora-scaled", "an adapter always uses the scale in its file: --adapters NAME=PATH"},
    {"--max-loras", "use --adapter-memory"},
    {"--max-cpu-loras", "use --adapter-memory"},
    {"--max-lora-rank", "ranks up to 256 are always supported"},
    {"--mmproj", "vision and audio towers are not served"},
    {"-md", "use --model-draft"},
    {"--api-key-file", "use security.keys with 'file'"},
    {"--ssl-key-file", "use --server.tls.key"},
    {"--ssl-cert-file", "use --server.tls.certificate"},
    {"--ssl-keyfile", "use --server.tls.key"},
    {"--ssl-certfile", "use --server.tls.certificate"},
    {"--ssl-ca-certs", "use --server.tls.client-ca"},
    {"--timeout", "use --server.timeout.write"},
    {"--timeout-keep-alive", "use --server.timeout.idle"},
    {"--no-webui", "the page at / is always served"},
    {"--path", "the page at / is built in"},
    {"--dtype", kFilePrecision},
    {"--quantization", kFilePrecision},
    {"--load-format", "the format is detected from the file"},
    {"--tokenizer", "the tokenizer is read from the model's file or directory"},
    {"--trust-remote-code", "code in models is never run; leave it out"},
    {"--revision", kHubRevision},
    {"--gpu-memory-utilization", "use --kv-cache-memory"},
    {"--num-gpu-blocks-override", "use --num-blocks"},
    {"--swap-space", "use --kv-cache.host-tier-bytes"},
    {"--cpu-offload-gb", "use --kv-cache.host-tier-bytes for blocks; weights are not offloaded"},
    {"--enable-prefix-caching", "on by default: --kv-cache.prefix-caching"},
    {"--no-enable-prefix-caching", "use --kv-cache.prefix-caching false"},
    {"--enable-chunked-prefill", kAlwaysOn},
    {"--scheduling-policy", "use --scheduler.policy"},
    {"--tool-call-parser", "use --tool-format"},
    {"--enable-auto-tool-choice", kAlwaysOn},
    {"--reasoning-parser", "reasoning is detected from the chat template; leave it out"},
    {"--enforce-eager", "set backend.cuda.graphs to false"},
    {"-tp", "use --tensor-parallel-size"},
    {"--pipeline-parallel-size", "layers are not divided among GPUs; use --tensor-parallel-size"},
    {"--data-parallel-size", "run several daemons behind a proxy (fleet.md)"},
    {"--disable-log-requests", "use --log.access off"},
    {"--allowed-origins", "use --security.cors-origins"},
    {"--uds", "use --server.unix-socket"},
});

}  // namespace

std::span<const ForeignFlag> foreign_flags() {
  return kFlags;
}

std::string_view foreign_flag_advice(std::string_view name) {
  const auto found =
      std::find_if(kFlags.begin(), kFlags.end(), [&](const ForeignFlag& flag) { return flag.name == name; });
  return found == kFlags.end() ? std::string_view() : found->advice;
}

}  // namespace quire
