#include "config/keys.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "config/key_types.h"

namespace quire {
namespace {

namespace types = config_types;

using Keys = std::vector<ConfigKey>;

constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
constexpr types::Range kSomeBytes{1, kMostBytes};
constexpr types::Range kAnyBytes{0, kMostBytes};
constexpr types::Range kAtLeastOne{1};
constexpr types::Range kAnyCount{0};
constexpr types::Range kAnyLongCount{0, kMostBytes};

Keys server_keys() {
  return {
      types::text(
          {"server.host", "The address to listen on; 0.0.0.0: every IPv4 address of the machine", {"--host"}},
          [](Config & c) -> auto& { return c.serve.server.host; }),
      types::integer<std::uint16_t>({"server.port", "The port to listen on; 0: any free port", {"--port"}},
                                    [](Config & c) -> auto& { return c.serve.server.port; }, {0, 65535}),
      types::integer<std::int32_t>({"server.threads", "Threads that read and write sockets"},
                                   [](Config & c) -> auto& { return c.serve.server.io_threads; }, {1, 1024}),
      types::integer<std::int32_t>(
          {"server.text_threads",
           "Threads that parse JSON, render chat templates and tokenize; half of them take short requests only"},
          [](Config & c) -> auto& { return c.serve.server.text_threads; }, {1, 1024}),
      types::integer<std::int64_t>(
          {"server.max_connections", "Connections open at the same time; further ones are closed"},
          [](Config & c) -> auto& { return c.serve.server.max_connections; }, kAtLeastOne),
      types::size({"server.max_header_bytes", "The largest request head"},
                  [](Config & c) -> auto& { return c.serve.server.max_header_bytes; }, {1024, std::int64_t{1} << 24}),
      types::size(
          {"server.max_body_bytes", "The largest request body; a larger one is refused with 413"},
          [](Config & c) -> auto& { return c.serve.server.max_body_bytes; }, kSomeBytes),
      types::size(
          {"server.max_queued_bytes",
           "Total size of the request bodies that are being received or wait to be parsed; above it, the largest "
           "unfinished upload of the key or address with the most bytes is refused"},
          [](Config & c) -> auto& { return c.serve.server.max_queued_bytes; }, kSomeBytes),
      types::integer<std::int64_t>(
          {"server.list_window",
           "Prompts of one request's list that wait or run at the same time; the others follow as these finish"},
          [](Config & c) -> auto& { return c.serve.server.list_window; }, kAtLeastOne),
      types::size(
          {"server.min_body_rate",
           "The lowest average rate, in bytes per second, at which a body may arrive once server.timeout.body has "
           "passed; "
           "slower uploads get 408"},
          [](Config & c) -> auto& { return c.serve.server.min_body_rate; }, kSomeBytes),
      types::size(
          {"server.max_unread_bytes",
           "Total size of the answers that clients have not read yet; above it, the connection with the largest one of "
           "the key or address with the most bytes is reset"},
          [](Config & c) -> auto& { return c.serve.server.max_unread_bytes; }, kSomeBytes),
      types::size(
          {"server.min_answer_rate",
           "The lowest average rate, in bytes per second, at which a client may read an answer once "
           "server.timeout.write has passed; slower connections are closed"},
          [](Config & c) -> auto& { return c.serve.server.min_answer_rate; }, kSomeBytes),
  };
}

Keys listener_keys() {
  return {
      types::text(
          {"server.unix_socket", "The path of a unix socket to listen on, in addition to the address; empty: none"},
          [](Config & c) -> auto& { return c.serve.server.unix_socket; }),
      types::text_choice({"server.unix_socket_mode", "File mode of the unix socket"},
                         [](Config & c) -> auto& { return c.serve.server.unix_socket_mode; }, {"0600", "0660", "0666"}),
      types::text(
          {"server.admin_listen",
           "ADDRESS:PORT, or the path of a unix socket, of the admin listener; /admin, health and metrics need no key "
           "there; empty: none"},
          [](Config & c) -> auto& { return c.serve.server.admin_listen; }),
      types::text_choice({"server.admin_socket_mode", "File mode of admin_listen if it is a path"},
                         [](Config & c) -> auto& { return c.serve.server.admin_socket_mode; },
                         {"0600", "0660", "0666"}),
      types::duration(
          {"server.exit_when_idle",
           "Exit with code 0 after this time without an API request or an unfinished batch; a supervisor that holds "
           "the sockets then starts the process for the next request; 0s: never"},
          [](Config & c) -> auto& { return c.serve.server.exit_when_idle; }),
      types::text(
          {"server.model_root",
           "The only folder from which /admin may load models, adapters, templates and packed weights; empty: the "
           "folders of the configured models and adapters, and the hub's cache if server.pull.enabled is true"},
          [](Config & c) -> auto& { return c.serve.server.model_root; }),
      types::integer<std::int64_t>(
          {"server.max_connections_per_address",
           "Connections open at the same time from one address; 0: no separate limit"},
          [](Config & c) -> auto& { return c.serve.server.max_connections_per_address; }, kAnyCount),
      types::text(
          {"server.tls.certificate",
           "A PEM file with the certificate, followed by its intermediate certificates; empty: plain HTTP"},
          [](Config & c) -> auto& { return c.serve.server.tls.certificate; }),
      types::text(
          {"server.tls.key", "A PEM file with the certificate's private key"},
          [](Config & c) -> auto& { return c.serve.server.tls.key; }),
      types::text(
          {"server.tls.client_ca",
           "A PEM file with the CAs that sign client certificates; empty: no client certificate is requested"},
          [](Config & c) -> auto& { return c.serve.server.tls.client_ca; }),
      types::choice<ClientCertificate>(
          {"server.tls.client_certificate", "Whether a client must present a certificate"},
          [](Config & c) -> auto& { return c.serve.server.tls.client_certificate; },
          {{"required", ClientCertificate::kRequired}, {"optional", ClientCertificate::kOptional}}),
  };
}

Keys response_keys() {
  return {
      types::integer<std::int64_t>(
          {"server.responses.max_count",
           "Responses, conversations and stored chats that are kept; the key with the most loses its least recently "
           "used first. 0: none"},
          [](Config & c) -> auto& { return c.serve.server.responses.max_count; }, kAnyLongCount),
      types::size(
          {"server.responses.max_bytes", "Host memory for stored responses and chats"},
          [](Config & c) -> auto& { return c.serve.server.responses.max_bytes; }, kSomeBytes),
      types::size(
          {"server.responses.socket_bytes",
           "Host memory for the last responses of open WebSockets, which their next messages continue from; the key "
           "with the most loses its least recently used first"},
          [](Config & c) -> auto& { return c.serve.server.responses.socket_bytes; }, kSomeBytes),
  };
}

Keys slot_keys() {
  return {
      types::text(
          {"server.slots.directory",
           "A directory for conversations that an admin saves and restores with POST /slots/{id}?action=save and "
           "?action=restore; empty: these requests are refused",
           {"--slot-save-path"}},
          [](Config & c) -> auto& { return c.serve.server.slots.directory; }),
      types::size(
          {"server.slots.max_bytes", "Maximum size of the directory; a save or restore may use as much host memory"},
          [](Config & c) -> auto& { return c.serve.server.slots.max_bytes; }, kSomeBytes),
  };
}

Keys timeout_keys() {
  return {
      types::duration(
          {"server.timeout.idle", "Longest wait for the next request on a connection"},
          [](Config & c) -> auto& { return c.serve.server.timeout.idle; }),
      types::duration(
          {"server.timeout.header", "Longest time from the first to the last byte of a request head"},
          [](Config & c) -> auto& { return c.serve.server.timeout.header; }),
      types::duration(
          {"server.timeout.body", "Longest wait for further bytes of a request body"},
          [](Config & c) -> auto& { return c.serve.server.timeout.body; }),
      types::duration(
          {"server.timeout.ping",
           "Time without an event on an SSE stream after which a comment line is sent as a keepalive; 0s: never"},
          [](Config & c) -> auto& { return c.serve.server.timeout.ping; }),
      types::duration(
          {"server.timeout.write", "Longest wait for the client to accept further bytes of a response"},
          [](Config & c) -> auto& { return c.serve.server.timeout.write; }),
      types::duration(
          {"server.timeout.socket",
           "How long a WebSocket may be used; after that, the next message is refused and the connection is closed"},
          [](Config & c) -> auto& { return c.serve.server.timeout.socket; }),
  };
}

Keys resume_keys() {
  return {
      types::duration(
          {"server.resume.window",
           "How long a stream continues and is kept after its client disconnects; a repeated request with the same "
           "X-Request-Id and a Last-Event-ID resumes it; 0s: it ends immediately"},
          [](Config & c) -> auto& { return c.serve.server.resume.window; }),
      types::size(
          {"server.resume.memory", "Host memory for all resumable streams"},
          [](Config & c) -> auto& { return c.serve.server.resume.max_bytes; }, kSomeBytes),
  };
}

Keys security_keys() {
  return {
      types::api_keys(
          {"security.keys",
           "The API keys, by name. 'sha256' is the hash of the key (printf %s KEY | sha256sum); 'env' names an "
           "environment variable and 'file' a file with the key; 'admin: true' allows /admin; requests_per_minute, "
           "tokens_per_minute, max_concurrent and max_context limit the key; 'priority' (0) is the lowest value (the "
           "most urgent) that its requests may set. Empty list: no key is required"},
          [](Config & c) -> auto& { return c.serve.server.security.keys; }),
      types::choice<PageAccess>(
          {"security.metrics", "Access to /metrics: open, with any key, or with an admin key"},
          [](Config & c) -> auto& { return c.serve.server.security.metrics; },
          {{"open", PageAccess::kOpen}, {"key", PageAccess::kKey}, {"admin", PageAccess::kAdmin}}),
      types::choice<Exposure>({"security.keyless",
                               "At the start, if the server has no keys, requires no client certificate and listens "
                               "beyond this machine: warn, refuse to start, or allow it"},
                              [](Config & c) -> auto& { return c.serve.server.security.keyless; },
                              {{"warn", Exposure::kWarn}, {"refuse", Exposure::kRefuse}, {"allow", Exposure::kAllow}}),
      types::texts(
          {"security.allowed_hosts",
           "Host headers accepted by a server without keys and TLS, in addition to addresses, names without a dot, "
           "this "
           "machine's name and local domains (.local, .internal, ...); '*': all. This is the protection against DNS "
           "rebinding"},
          [](Config & c) -> auto& { return c.serve.server.security.allowed_hosts; }),
      types::integer<std::int64_t>(
          {"security.max_failures_per_minute",
           "Requests without a valid key that one address may send per minute; further ones get 429. 0: no limit"},
          [](Config & c) -> auto& { return c.serve.server.security.max_failures_per_minute; }, kAnyCount),
      types::texts(
          {"security.cors_origins",
           "Origins whose pages may call the API from a browser (CORS), such as https://chat.example; '*': all"},
          [](Config & c) -> auto& { return c.serve.server.cors.origins; }),
  };
}

Keys scheduler_keys() {
  return {
      types::integer<std::int32_t>(
          {"scheduler.max_num_seqs", "Sequences computed in one step", {"--max-num-seqs", "--parallel"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_num_seqs; }, kAtLeastOne),
      types::integer<std::int32_t>(
          {"scheduler.max_num_batched_tokens",
           "Tokens computed in one step, prompts and answers together",
           {"--max-num-batched-tokens", "--batch-size", "-b"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_num_batched_tokens; }, kAtLeastOne),
      types::integer<std::int64_t>(
          {"scheduler.max_model_len",
           "The longest context, prompt and answer together, in tokens; 0: what the model and the KV cache allow",
           {"--max-model-len", "--ctx-size", "-c"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_model_len; }, kAnyCount),
      types::choice<SchedulerPolicy>(
          {"scheduler.policy",
           "The order of waiting requests: by arrival, by their priority, or the API key served least first"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.policy; },
          {{"fcfs", SchedulerPolicy::kFcfs},
           {"priority", SchedulerPolicy::kPriority},
           {"fair", SchedulerPolicy::kFair}}),
      types::seconds(
          {"scheduler.priority_aging", "Under 'priority': the waiting time that counts as one level of priority"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.priority_aging_s; }),
      types::weights(
          {"scheduler.key_weights", "Under 'fair': the weight of each API key by its name; others have weight 1"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.key_weights; }),
      types::choice<Preemption>(
          {"scheduler.preemption",
           "How a preempted sequence gets its blocks back: from the host tier (swap), by recomputing them, or by the "
           "cheaper of both (auto); without a host tier always by recomputing"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.preemption; },
          {{"auto", Preemption::kCheaper}, {"swap", Preemption::kSwap}, {"recompute", Preemption::kRecompute}}),
      types::boolean(
          {"scheduler.prefix_aware", "Among the first waiting requests, prefer those whose prompt is cached"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.prefix_aware; }),
      types::milliseconds(
          {"scheduler.target_itl",
           "Target time between tokens: while sequences decode, prompt chunks are shortened so that a step takes about "
           "this long; where decoding alone takes longer, prompts get a quarter of each step; 0s: off"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.target_itl_ms; }),
      types::milliseconds_or_auto(
          {"scheduler.max_step_time",
           "The longest predicted time of a step while another request waits or decodes, but at least three times the "
           "fixed cost of a step (reading the weights); auto: the longer of 250 ms and four times that cost; 0s: off"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_step_time_ms; },
          SchedulerOptions::kAutoStepTime),
  };
}

Keys speculation_keys() {
  return {
      types::choice<SpeculationMethod>(
          {"speculation.method",
           "prompt_lookup: draft the tokens that followed an earlier occurrence of the last tokens; mtp: draft with "
           "the multi-token-prediction block of a qwen35 GGUF file; draft: draft with draft_model",
           {"--speculation"}},
          [](Config & c) -> auto& { return c.serve.engine.speculation.method; },
          {{"none", SpeculationMethod::kNone},
           {"prompt_lookup", SpeculationMethod::kPromptLookup},
           {"mtp", SpeculationMethod::kNextTokens},
           {"draft", SpeculationMethod::kDraftModel}}),
      types::path(
          {"speculation.draft_model",
           "A smaller model of the same vocabulary (GGUF file or Hugging Face directory) that drafts; its KV cache "
           "uses part of the KV pool. Setting it changes method none to draft. With models, set it in a model's entry",
           {"--model-draft"}},
          [](Config & c) -> auto& { return c.serve.model.draft_model; }),
      types::integer<std::int32_t>({"speculation.max_tokens",
                                    "Maximum draft tokens per sequence and step; fewer if often wrong or costly",
                                    {"--draft-max"}},
                                   [](Config & c) -> auto& { return c.serve.engine.speculation.max_tokens; },
                                   {1, kMostDraftsOfSequence}),
  };
}

Keys kv_cache_keys() {
  return {
      types::integer<std::int32_t>({"kv_cache.block_size", "Tokens in one block", {"--block-size"}},
                                   [](Config & c) -> auto& { return c.serve.engine.kv_cache.block_size; },
                                   {16, 1024, 16}),
      types::integer<std::int64_t>(
          {"kv_cache.num_blocks",
           "Blocks in the pool, with tensor_parallel on each GPU; 0: as many as kv_cache.memory holds",
           {"--num-blocks"}},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.num_blocks; }, kAnyCount),
      types::size(
          {"kv_cache.memory",
           "Memory of the pool, with tensor_parallel on each GPU; 0: the memory plan decides. Use either this or "
           "num_blocks",
           {"--kv-cache-memory", "--kv-cache-memory-bytes"}},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.memory; }, kAnyBytes),
      types::choice<KvDType>({"kv_cache.dtype", "The element type of stored keys and values", {"--kv-cache-dtype"}},
                             [](Config & c) -> auto& { return c.serve.engine.kv_cache.dtype; },
                             {std::begin(kKvDTypes), std::end(kKvDTypes)}),
      types::boolean(
          {"kv_cache.prefix_caching", "Keep computed KV blocks for requests with the same prefix"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.enable_prefix_caching; }),
      types::number(
          {"kv_cache.retained_share",
           "The share of the pool in which prompts that clients ask to keep (prompt_cache_key, previous_response_id) "
           "are evicted last; if a request needs their blocks, they are still evicted"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.retained_share; }, 0.0, 1.0),
      types::choice<Isolation>(
          {"kv_cache.isolate_by_key",
           "Share cached blocks only among requests of the same API key, or among those without a key; auto: as true"},
          [](Config & c) -> auto& { return c.serve.isolation; },
          {{"true", Isolation::kByKey}, {"false", Isolation::kNone}, {"auto", Isolation::kByKey}}),
      types::size(
          {"kv_cache.host_tier_bytes", "Host memory for blocks evicted from the pool; 0: no host tier"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.host_tier_bytes; }, kAnyBytes),
      types::text(
          {"kv_cache.disk_tier_path", "A directory for blocks that are kept across restarts; empty: no disk tier"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.disk_tier_path; }),
      types::size(
          {"kv_cache.disk_tier_bytes", "Maximum size of the disk tier"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.disk_tier_bytes; }, kSomeBytes),
  };
}

Keys engine_keys() {
  return {
      types::integer<std::uint64_t>(
          {"engine.seed", "Base seed for requests without one; 0: a new base seed at each start", {"--seed", "-s"}},
          [](Config & c) -> auto& { return c.serve.engine.seed; }, kAnyLongCount),
      types::integer<std::int64_t>(
          {"engine.json_whitespace",
           "Maximum length of a run of whitespace between two tokens of constrained JSON, so that a model cannot "
           "fill its answer with whitespace; 0: no whitespace"},
          [](Config & c) -> auto& { return c.serve.engine.max_json_spaces; }, types::Range{0, 512}),
  };
}

Keys queue_keys() {
  return {
      types::integer<std::int64_t>(
          {"queue.max_queued_requests", "Requests that may wait; further ones get 503"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_requests; }, kAtLeastOne),
      types::integer<std::int64_t>(
          {"queue.max_queued_tokens", "Prompt tokens of all waiting requests"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_tokens; }, kAtLeastOne),
      types::size(
          {"queue.max_queued_bytes", "Total body size of all waiting requests"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_bytes; }, kSomeBytes),
      types::integer<std::int64_t>(
          {"queue.max_queued_requests_per_key", "Waiting requests of one API key; further ones get 429. 0: no limit"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_requests_per_key; }, kAnyCount),
      types::integer<std::int64_t>(
          {"queue.max_queued_tokens_per_key", "Prompt tokens of one API key's waiting requests; 0: no limit"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_tokens_per_key; }, kAnyCount),
      types::size(
          {"queue.max_queued_bytes_per_key", "Total body size of one API key's waiting requests; 0: no limit"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_bytes_per_key; }, kAnyBytes),
      types::seconds(
          {"queue.max_queue_time", "A request that has not started after this time gets 503; 0s: no limit"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queue_time_s; }),
  };
}

Keys operation_keys() {
  return {
      types::duration(
          {"drain.delay", "Time after SIGTERM during which the readiness check fails and requests are still served"},
          [](Config & c) -> auto& { return c.serve.server.drain.delay; }),
      types::duration(
          {"drain.deadline",
           "The time after the delay for running requests to finish; new requests are refused, and unfinished ones "
           "are cut when it ends"},
          [](Config & c) -> auto& { return c.serve.server.drain.deadline; }),
      types::text_choice({"log.level", "The lowest level that is logged", {"--log-level"}},
                         [](Config & c) -> auto& { return c.log.level; },
                         {"trace", "debug", "info", "warn", "error", "off"}),
      types::choice<AccessLog>(
          {"log.access", "Requests that are logged when they end; api: requests to models and all refusals"},
          [](Config & c) -> auto& { return c.serve.server.access_log; },
          {{"off", AccessLog::kOff}, {"api", AccessLog::kApi}, {"all", AccessLog::kAll}}),
      types::text_choice({"log.format", "The format of a log line", {"--log-format"}},
                         [](Config & c) -> auto& { return c.log.format; }, {"text", "json"}),
  };
}

Keys tracing_keys() {
  return {
      types::text(
          {"tracing.endpoint",
           "The OTLP/HTTP endpoint that receives a span for each request, such as http://127.0.0.1:4318/v1/traces; "
           "empty: "
           "no tracing"},
          [](Config & c) -> auto& { return c.serve.server.tracing.endpoint; }),
      types::text(
          {"tracing.ca", "A PEM file with the CA certificates trusted for an https endpoint; empty: the system's"},
          [](Config & c) -> auto& { return c.serve.server.tracing.ca; }),
      types::text(
          {"tracing.service_name", "The service name in spans"},
          [](Config & c) -> auto& { return c.serve.server.tracing.service_name; }),
      types::number(
          {"tracing.sample_ratio",
           "The share of requests that are traced; a request's traceparent header takes precedence"},
          [](Config & c) -> auto& { return c.serve.server.tracing.sample_ratio; }, 0.0, 1.0),
      types::integer<std::int64_t>(
          {"tracing.max_queued_spans", "Spans that may wait for export; further ones are dropped and counted"},
          [](Config & c) -> auto& { return c.serve.server.tracing.max_queued_spans; }, kAtLeastOne),
  };
}

// Keys that a reload can change while the server runs; a name that ends in a dot stands for its whole section.
constexpr std::string_view kLive[] = {"models",
                                      "model.alias",
                                      "model.chat_template",
                                      "model.tool_format",
                                      "server.max_connections",
                                      "server.max_connections_per_address",
                                      "server.max_header_bytes",
                                      "server.max_body_bytes",
                                      "server.max_queued_bytes",
                                      "server.min_body_rate",
                                      "server.max_unread_bytes",
                                      "server.min_answer_rate",
                                      "server.list_window",
                                      "server.model_root",
                                      "server.tls.",
                                      "server.timeout.",
                                      "server.resume.",
                                      "server.pull.",
                                      "security.",
                                      "scheduler.key_weights",
                                      "queue.",
                                      "drain.",
                                      "log.level",
                                      "log.access"};

bool is_live(const std::string& path) {
  return std::any_of(std::begin(kLive), std::end(kLive), [&](std::string_view live) { return covers_key(live, path); });
}

// The keys that the build leaves out, then those in it.
using DividedKeys = std::array<Keys, 2>;

DividedKeys make_keys() {
  DividedKeys divided;
  for (const auto section :
       {model_keys,    model_file_keys, models_keys, server_keys,    listener_keys,    timeout_keys,
        response_keys, slot_keys,       resume_keys, pull_keys,      media_keys,       pdf_keys,
        batch_keys,    security_keys,   quota_keys,  scheduler_keys, speculation_keys, kv_cache_keys,
        fleet_keys,    engine_keys,     queue_keys,  backend_keys,   operation_keys,   tracing_keys}) {
    for (ConfigKey& key : section()) {
      key.is_live = is_live(key.path);
      key.module = module_of_key(key.path);
      divided[is_built(key.module) ? 1 : 0].push_back(std::move(key));
    }
  }
  return divided;
}

const Keys& keys_of(bool built) {
  static const DividedKeys kKeys = make_keys();
  return kKeys[built ? 1 : 0];
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  return keys_of(true);
}

const std::vector<ConfigKey>& left_out_config_keys() {
  return keys_of(false);
}

}  // namespace quire
