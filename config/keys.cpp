#include "config/keys.h"

#include <algorithm>
#include <iterator>

#include "config/key_types.h"
#include "core/text/tools/tool_format.h"

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

Keys model_keys() {
  return {
      types::path(
          {"model.path", "A GGUF file, or a Hugging Face directory of safetensors", {"--model"}},
          [](Config & c) -> auto& { return c.serve.model.path; }),
      types::texts(
          {"model.alias",
           "Names that clients may call the model by; the first is the one it tells them. None: the file's name",
           {"--alias", "--served-model-name"}},
          [](Config & c) -> auto& { return c.serve.model.alias; }),
      types::path(
          {"model.chat_template", "A Jinja file to use instead of the model's own chat template", {"--chat-template"}},
          [](Config & c) -> auto& { return c.serve.model.chat_template; }),
      types::path(
          {"model.packed_cache",
           "A folder for weights as this processor's kernels want them, so that the next start maps them. Empty: none",
           {"--packed-cache"}},
          [](Config & c) -> auto& { return c.serve.model.packed_cache; }),
      types::known_text(
          {"model.tool_format", "How the model writes tool calls; empty: as its chat template says", {"--tool-format"}},
          [](Config & c) -> auto& { return c.serve.model.tool_format; },
          "empty, or the name of a format such as hermes or llama3_json", tool_format_names(),
          [](std::string_view name) { return name.empty() || find_tool_format(name) != nullptr; }),
  };
}

// A key without a section: the list stands for `model` where there is more than one.
Keys models_keys() {
  return {
      types::model_entries(
          {"models",
           "Several models instead of one: each with 'name' and 'path', and where it differs from the sections below "
           "'aliases', 'chat_template', 'tool_format', 'packed_cache', 'max_model_len', 'max_num_seqs', 'kv_dtype', "
           "'max_queued_requests' and 'max_queue_time'. 'kv_memory' is the size of its KV pool; the others divide "
           "kv_cache.memory by 'kv_share' (1). 'sleep_after': without work for so long it gives its memory back until "
           "a request wakes it. 'preload: false': the first request loads it"},
          [](Config & c) -> auto& { return c.serve.models; }),
  };
}

Keys server_keys() {
  return {
      types::text(
          {"server.host", "The address to listen on; 0.0.0.0 is every IPv4 one", {"--host"}},
          [](Config & c) -> auto& { return c.serve.server.host; }),
      types::integer<std::uint16_t>({"server.port", "The port to listen on; 0 takes any free one", {"--port"}},
                                    [](Config & c) -> auto& { return c.serve.server.port; }, {0, 65535}),
      types::integer<std::int32_t>({"server.threads", "Threads that read and write sockets"},
                                   [](Config & c) -> auto& { return c.serve.server.io_threads; }, {1, 1024}),
      types::integer<std::int32_t>(
          {"server.text_threads",
           "Threads that parse, render chat templates and tokenize; half of them take short requests only"},
          [](Config & c) -> auto& { return c.serve.server.text_threads; }, {1, 1024}),
      types::integer<std::int64_t>(
          {"server.max_connections", "Connections open at once; further ones are closed"},
          [](Config & c) -> auto& { return c.serve.server.max_connections; }, kAtLeastOne),
      types::size({"server.max_header_bytes", "The largest request head"},
                  [](Config & c) -> auto& { return c.serve.server.max_header_bytes; }, {1024, std::int64_t{1} << 24}),
      types::size(
          {"server.max_body_bytes", "The largest request body; a larger one is refused with 413"},
          [](Config & c) -> auto& { return c.serve.server.max_body_bytes; }, kSomeBytes),
      types::size(
          {"server.max_queued_bytes",
           "Bodies of all requests together that are being received or wait to be parsed; where they are more, the "
           "largest upload of the key or address that has most of them is refused"},
          [](Config & c) -> auto& { return c.serve.server.max_queued_bytes; }, kSomeBytes),
      types::integer<std::int64_t>(
          {"server.list_window",
           "Prompts of one request's list that wait or run at once; the others follow as these end"},
          [](Config & c) -> auto& { return c.serve.server.list_window; }, kAtLeastOne),
      types::size(
          {"server.min_body_rate",
           "Bytes per second that a body must bring on average, once server.timeout.body has passed; slower ones get "
           "408"},
          [](Config & c) -> auto& { return c.serve.server.min_body_rate; }, kSomeBytes),
  };
}

Keys listener_keys() {
  return {
      types::text(
          {"server.unix_socket", "A path to listen on beside the address; empty: none"},
          [](Config & c) -> auto& { return c.serve.server.unix_socket; }),
      types::text_choice({"server.unix_socket_mode", "Who may connect to that path"},
                         [](Config & c) -> auto& { return c.serve.server.unix_socket_mode; }, {"0600", "0660", "0666"}),
      types::text(
          {"server.admin_listen", "ADDRESS:PORT or a path where /admin, health and metrics need no key; empty: none"},
          [](Config & c) -> auto& { return c.serve.server.admin_listen; }),
      types::text_choice({"server.admin_socket_mode", "Who may connect to admin_listen where it is a path"},
                         [](Config & c) -> auto& { return c.serve.server.admin_socket_mode; },
                         {"0600", "0660", "0666"}),
      types::duration(
          {"server.exit_when_idle",
           "Ends with exit code 0 after so long without a request of the API, so that a supervisor that holds the "
           "sockets starts it again for the next one; 0s: never"},
          [](Config & c) -> auto& { return c.serve.server.exit_when_idle; }),
      types::text(
          {"server.model_root",
           "The folder that holds the models, templates and packed weights that /admin may name; empty: the folders "
           "of the models that there are"},
          [](Config & c) -> auto& { return c.serve.server.model_root; }),
      types::integer<std::int64_t>(
          {"server.max_connections_per_address", "Connections from one address; 0: no bound of its own"},
          [](Config & c) -> auto& { return c.serve.server.max_connections_per_address; }, kAnyCount),
      types::text(
          {"server.tls.certificate",
           "A PEM file with the certificate and those between it and the root; empty: plain HTTP"},
          [](Config & c) -> auto& { return c.serve.server.tls.certificate; }),
      types::text(
          {"server.tls.key", "A PEM file with the certificate's private key"},
          [](Config & c) -> auto& { return c.serve.server.tls.key; }),
      types::text(
          {"server.tls.client_ca", "A PEM file with the roots of client certificates; empty: none is asked for"},
          [](Config & c) -> auto& { return c.serve.server.tls.client_ca; }),
      types::choice<ClientCertificate>(
          {"server.tls.client_certificate", "Whether a client must show one"},
          [](Config & c) -> auto& { return c.serve.server.tls.client_certificate; },
          {{"required", ClientCertificate::kRequired}, {"optional", ClientCertificate::kOptional}}),
  };
}

Keys response_keys() {
  return {
      types::integer<std::int64_t>(
          {"server.responses.max_count", "Responses and stored chats that are kept; the unused go first. 0: none are"},
          [](Config & c) -> auto& { return c.serve.server.responses.max_count; }, kAnyLongCount),
      types::size(
          {"server.responses.max_bytes", "Host memory of what is kept"},
          [](Config & c) -> auto& { return c.serve.server.responses.max_bytes; }, kSomeBytes),
  };
}

Keys timeout_keys() {
  return {
      types::duration(
          {"server.timeout.idle", "Between two requests of a connection"},
          [](Config & c) -> auto& { return c.serve.server.timeout.idle; }),
      types::duration(
          {"server.timeout.header", "From the first byte of a request's head to its last"},
          [](Config & c) -> auto& { return c.serve.server.timeout.header; }),
      types::duration(
          {"server.timeout.body", "Without a further byte of the body"},
          [](Config & c) -> auto& { return c.serve.server.timeout.body; }),
      types::duration(
          {"server.timeout.write", "Without the client taking a further byte of the answer"},
          [](Config & c) -> auto& { return c.serve.server.timeout.write; }),
  };
}

Keys resume_keys() {
  return {
      types::duration(
          {"server.resume.window",
           "How long a stream whose client vanished goes on, and is kept, for a repetition of the request with the "
           "same "
           "X-Request-Id and a Last-Event-ID; 0s: it ends at once"},
          [](Config & c) -> auto& { return c.serve.server.resume.window; }),
      types::size(
          {"server.resume.memory", "What is kept of all streams together"},
          [](Config & c) -> auto& { return c.serve.server.resume.max_bytes; }, kSomeBytes),
  };
}

Keys security_keys() {
  return {
      types::api_keys(
          {"security.keys",
           "The API keys, by name. 'sha256' is the hash of the key (printf %s KEY | sha256sum), 'env' and 'file' say "
           "where it is; 'admin: true' opens /admin too; requests_per_minute, tokens_per_minute, max_concurrent and "
           "max_context bound it; 'priority' (0) is the most urgent, which is the lowest, that its requests may ask "
           "for. None: everybody is served"},
          [](Config & c) -> auto& { return c.serve.server.security.keys; }),
      types::choice<PageAccess>(
          {"security.metrics", "Who may read /metrics"},
          [](Config & c) -> auto& { return c.serve.server.security.metrics; },
          {{"open", PageAccess::kOpen}, {"key", PageAccess::kKey}, {"admin", PageAccess::kAdmin}}),
      types::choice<Exposure>(
          {"security.keyless",
           "What a server without keys does that listens beyond this machine: start with a warning, refuse to start, "
           "or start"},
          [](Config & c) -> auto& { return c.serve.server.security.keyless; },
          {{"warn", Exposure::kWarn}, {"refuse", Exposure::kRefuse}, {"allow", Exposure::kAllow}}),
      types::texts(
          {"security.allowed_hosts",
           "Host names that a server without keys and TLS answers to, beside addresses, names without a dot, this "
           "machine's name and local domains (.local, .internal, ...); '*': all. It keeps web pages out whose names "
           "were made to lead here"},
          [](Config & c) -> auto& { return c.serve.server.security.allowed_hosts; }),
      types::integer<std::int64_t>(
          {"security.max_failures_per_minute",
           "Requests without a valid key that one address may send in a minute; further ones get 429. 0: no bound"},
          [](Config & c) -> auto& { return c.serve.server.security.max_failures_per_minute; }, kAnyCount),
      types::texts(
          {"security.cors_origins",
           "Other sites whose pages may use the API from a browser, such as https://chat.example; '*': all"},
          [](Config & c) -> auto& { return c.serve.server.cors.origins; }),
  };
}

Keys scheduler_keys() {
  return {
      types::integer<std::int32_t>(
          {"scheduler.max_num_seqs", "Sequences computed in one step", {"--max-num-seqs"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_num_seqs; }, kAtLeastOne),
      types::integer<std::int32_t>(
          {"scheduler.max_num_batched_tokens",
           "Tokens computed in one step, prompts and answers together",
           {"--max-num-batched-tokens"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_num_batched_tokens; }, kAtLeastOne),
      types::integer<std::int64_t>(
          {"scheduler.max_model_len",
           "Tokens of a prompt and its answer together; 0: what the model and the KV cache allow",
           {"--max-model-len"}},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_model_len; }, kAnyCount),
      types::choice<SchedulerPolicy>(
          {"scheduler.policy",
           "Who goes first: in order of arrival, by the requests' priority, or the key served least"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.policy; },
          {{"fcfs", SchedulerPolicy::kFcfs},
           {"priority", SchedulerPolicy::kPriority},
           {"fair", SchedulerPolicy::kFair}}),
      types::seconds(
          {"scheduler.priority_aging", "Under 'priority': waiting that weighs as much as one level of priority"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.priority_aging_s; }),
      types::weights(
          {"scheduler.key_weights", "Under 'fair': the share of each API key by its name; others weigh 1"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.key_weights; }),
      types::choice<Preemption>(
          {"scheduler.preemption",
           "How a sequence gets back the blocks it had to give up: from the host tier (swap), by computing them again, "
           "or by whichever costs less (auto); without a host tier always by computing"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.preemption; },
          {{"auto", Preemption::kCheaper}, {"swap", Preemption::kSwap}, {"recompute", Preemption::kRecompute}}),
      types::boolean(
          {"scheduler.prefix_aware", "Among the first that wait, prefer those whose prompt is cached already"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.prefix_aware; }),
      types::milliseconds(
          {"scheduler.target_itl",
           "While somebody streams, shorten prompt chunks so that a step takes about this long, or twice as long as "
           "the streams alone; 0s: off"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.target_itl_ms; }),
      types::milliseconds_or_auto(
          {"scheduler.max_step_time",
           "While another request waits or streams no step is planned to take longer; auto: the longer of 250 ms and "
           "four times what a step costs however little it computes; 0s: off"},
          [](Config & c) -> auto& { return c.serve.engine.scheduler.max_step_time_ms; },
          SchedulerOptions::kAutoStepTime),
  };
}

Keys speculation_keys() {
  return {
      types::choice<SpeculationMethod>(
          {"speculation.method",
           "Draft what followed the last tokens where they stood before; not on GPUs, nor for recurrent layers",
           {"--speculation"}},
          [](Config & c) -> auto& { return c.serve.engine.speculation.method; },
          {{"none", SpeculationMethod::kNone}, {"prompt_lookup", SpeculationMethod::kPromptLookup}}),
      types::integer<std::int32_t>(
          {"speculation.max_tokens", "Drafts of a sequence in a step; fewer where they are wrong or cost too much"},
          [](Config & c) -> auto& { return c.serve.engine.speculation.max_tokens; }, {1, kMostDraftsOfSequence}),
  };
}

Keys kv_cache_keys() {
  return {
      types::integer<std::int32_t>({"kv_cache.block_size", "Tokens in one block", {"--block-size"}},
                                   [](Config & c) -> auto& { return c.serve.engine.kv_cache.block_size; },
                                   {16, 1024, 16}),
      types::integer<std::int64_t>(
          {"kv_cache.num_blocks", "Blocks in the pool; 0: as many as kv_cache.memory holds", {"--num-blocks"}},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.num_blocks; }, kAnyCount),
      types::size(
          {"kv_cache.memory",
           "Memory of the pool; 0: decided by the memory plan. Not together with num_blocks",
           {"--kv-cache-memory"}},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.memory; }, kAnyBytes),
      types::choice<KvDType>({"kv_cache.dtype", "How keys and values are stored", {"--kv-cache-dtype"}},
                             [](Config & c) -> auto& { return c.serve.engine.kv_cache.dtype; },
                             {std::begin(kKvDTypes), std::end(kKvDTypes)}),
      types::boolean(
          {"kv_cache.prefix_caching", "Keep the blocks of finished prompts for requests that begin the same"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.enable_prefix_caching; }),
      types::choice<Isolation>(
          {"kv_cache.isolate_by_key",
           "Share cached blocks only among the requests of one API key; auto: where the server starts with several "
           "keys"},
          [](Config & c) -> auto& { return c.serve.isolation; },
          {{"auto", Isolation::kAuto}, {"true", Isolation::kByKey}, {"false", Isolation::kNone}}),
      types::size(
          {"kv_cache.host_tier_bytes", "Host memory for blocks that leave the pool; 0: none"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.host_tier_bytes; }, kAnyBytes),
      types::text(
          {"kv_cache.disk_tier_path", "A directory for blocks that outlive the process; empty: none"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.disk_tier_path; }),
      types::size(
          {"kv_cache.disk_tier_bytes", "The most that directory may hold"},
          [](Config & c) -> auto& { return c.serve.engine.kv_cache.disk_tier_bytes; }, kSomeBytes),
  };
}

Keys engine_keys() {
  return {
      types::integer<std::uint64_t>(
          {"engine.seed", "From which requests without a seed draw theirs; 0: a new one at each start", {"--seed"}},
          [](Config & c) -> auto& { return c.serve.engine.seed; }, kAnyLongCount),
  };
}

Keys queue_keys() {
  return {
      types::integer<std::int64_t>(
          {"queue.max_queued_requests", "Requests that wait at once; further ones get 503"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_requests; }, kAtLeastOne),
      types::integer<std::int64_t>(
          {"queue.max_queued_tokens", "Prompt tokens of all that wait"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_tokens; }, kAtLeastOne),
      types::size(
          {"queue.max_queued_bytes", "Request bodies of all that wait"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_bytes; }, kSomeBytes),
      types::integer<std::int64_t>(
          {"queue.max_queued_requests_per_key", "The same for one API key, refused with 429; 0: no bound"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_requests_per_key; }, kAnyCount),
      types::integer<std::int64_t>(
          {"queue.max_queued_tokens_per_key", "Prompt tokens of one API key; 0: no bound"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_tokens_per_key; }, kAnyCount),
      types::size(
          {"queue.max_queued_bytes_per_key", "Request bodies of one API key; 0: no bound"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queued_bytes_per_key; }, kAnyBytes),
      types::seconds(
          {"queue.max_queue_time", "A request that has not started after this long gets 503; 0s: it waits"},
          [](Config & c) -> auto& { return c.serve.engine.queue.max_queue_time_s; }),
  };
}

Keys backend_keys() {
  std::vector<std::string> levels = {"auto"};
  for (const IsaLevel& level : cpu_isa_levels())
    levels.push_back(level.name);
  return {
      types::text_choice(
          {"backend.device", "What computes; auto: a GPU where the build and the machine have one", {"--device"}},
          [](Config & c) -> auto& { return c.serve.backend.device; }, {"auto", "cpu", "cuda"}),
      types::text_choice(
          {"backend.cpu.isa", "The processor's instructions to use; auto: the best it has", {"--isa"}},
          [](Config & c) -> auto& { return c.serve.backend.cpu.isa; }, levels),
      types::integer<int>(
          {"backend.cpu.threads", "Compute threads; 0: one for each core that the process may use", {"--threads"}},
          [](Config & c) -> auto& { return c.serve.backend.cpu.threads; }, {0, 4096}),
      types::boolean(
          {"backend.cpu.pin", "Keep each compute thread on one core"},
          [](Config & c) -> auto& { return c.serve.backend.cpu.pin; }),
  };
}

Keys operation_keys() {
  return {
      types::duration(
          {"drain.delay", "After SIGTERM readiness is red and everything still served for this long"},
          [](Config & c) -> auto& { return c.serve.server.drain.delay; }),
      types::duration(
          {"drain.deadline", "Then new requests are refused; what is not finished after this long is cut"},
          [](Config & c) -> auto& { return c.serve.server.drain.deadline; }),
      types::text_choice({"log.level", "The least important lines to log", {"--log-level"}},
                         [](Config & c) -> auto& { return c.log.level; },
                         {"trace", "debug", "info", "warn", "error", "off"}),
      types::choice<AccessLog>(
          {"log.access", "Which requests are logged when they are over; api: those to models and all that are refused"},
          [](Config & c) -> auto& { return c.serve.server.access_log; },
          {{"off", AccessLog::kOff}, {"api", AccessLog::kApi}, {"all", AccessLog::kAll}}),
      types::text_choice({"log.format", "How a line looks", {"--log-format"}},
                         [](Config & c) -> auto& { return c.log.format; }, {"text", "json"}),
  };
}

Keys tracing_keys() {
  return {
      types::text(
          {"tracing.endpoint",
           "Where to send a span for each request by OTLP over HTTP or HTTPS, such as http://127.0.0.1:4318/v1/traces; "
           "empty: "
           "nowhere"},
          [](Config & c) -> auto& { return c.serve.server.tracing.endpoint; }),
      types::text(
          {"tracing.ca",
           "Whose certificates an https endpoint may show, as a PEM file; empty: those the system trusts"},
          [](Config & c) -> auto& { return c.serve.server.tracing.ca; }),
      types::text(
          {"tracing.service_name", "What the spans call this server"},
          [](Config & c) -> auto& { return c.serve.server.tracing.service_name; }),
      types::number(
          {"tracing.sample_ratio", "The share of requests that are traced; a caller's traceparent decides for its own"},
          [](Config & c) -> auto& { return c.serve.server.tracing.sample_ratio; }, 0.0, 1.0),
      types::integer<std::int64_t>(
          {"tracing.max_queued_spans", "Requests that wait to be told of; further ones are dropped and counted"},
          [](Config & c) -> auto& { return c.serve.server.tracing.max_queued_spans; }, kAtLeastOne),
  };
}

// What a reload can change while the server runs; a section stands for all its keys.
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
                                      "server.list_window",
                                      "server.model_root",
                                      "server.tls.",
                                      "server.timeout.",
                                      "server.resume.",
                                      "security.",
                                      "scheduler.key_weights",
                                      "queue.",
                                      "drain.",
                                      "log.level",
                                      "log.access"};

bool is_live(const std::string& path) {
  return std::any_of(std::begin(kLive), std::end(kLive),
                     [&](std::string_view live) { return live.back() == '.' ? path.starts_with(live) : path == live; });
}

Keys make_keys() {
  Keys all;
  for (const auto section : {model_keys, models_keys, server_keys, listener_keys, timeout_keys, response_keys,
                             resume_keys, security_keys, scheduler_keys, speculation_keys, kv_cache_keys, engine_keys,
                             queue_keys, backend_keys, operation_keys, tracing_keys}) {
    Keys keys = section();
    std::move(keys.begin(), keys.end(), std::back_inserter(all));
  }
  for (ConfigKey& key : all)
    key.is_live = is_live(key.path);
  return all;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const Keys kKeys = make_keys();
  return kKeys;
}

const std::vector<ConfigSection>& config_sections() {
  static const std::vector<ConfigSection> kSections = {
      {"model", "What is served."},
      {"server", "The HTTP side."},
      {"server.tls", "TLS 1.2 and later, on the TCP listeners other than the admin's."},
      {"server.timeout", "How long a connection may keep the server waiting."},
      {"server.responses",
       "What is kept of /v1/responses, and of chats with 'store', for clients to read and go on from."},
      {"server.resume", "Streams that can be taken up again after their connection broke."},
      {"security", "Who may use the server, and how much of it."},
      {"scheduler", "What goes into a step of the engine."},
      {"speculation", "Several tokens in one step where the next ones can be guessed; no answer depends on it."},
      {"kv_cache", "The memory of attention."},
      {"engine", "The loop that computes."},
      {"queue", "What may wait to be computed; what would exceed a bound is refused at once."},
      {"backend", "The hardware."},
      {"backend.cpu", "Where the processor computes."},
      {"drain", "How the server ends."},
      {"log", "What it tells on standard error."},
      {"tracing", "What it tells a distributed trace."},
  };
  return kSections;
}

const ConfigKey* find_config_key(std::string_view path) {
  const Keys& keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace quire
