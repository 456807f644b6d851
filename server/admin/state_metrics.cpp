#include "server/admin/handlers.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "core/base/log_buffer.h"
#include "server/api/common/model_table.h"
#include "server/metrics/exposition.h"
#include "server/models/running_model.h"
#include "server/modules/modules.h"
#include "server/ops/keys/quota.h"
#include "server/run/batch_service.h"
#include "server/run/media_service.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"
#include "server/threads/text_pool.h"
#include "server/wire/client_budget.h"

namespace quire {

namespace {

using metrics::MetricFamily;
using FamilyType = metrics::MetricType;
using Labels = std::vector<metrics::ClientMetric::Label>;

constexpr std::array<ModelState, 7> kStates = {ModelState::kUnloaded, ModelState::kLoading, ModelState::kReady,
                                               ModelState::kSleeping, ModelState::kWaking,  ModelState::kDraining,
                                               ModelState::kFailed};
constexpr std::array<const char*, kNumTextLanes> kLaneNames = {"quick", "long"};

MetricFamily new_family(const char* name, const char* help, FamilyType type) {
  MetricFamily made;
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

void add_metric(MetricFamily& to, double value, Labels labels = {}) {
  metrics::ClientMetric metric;
  metric.label = std::move(labels);
  metric.value = value;
  to.metric.push_back(std::move(metric));
}

MetricFamily single(const char* name, const char* help, FamilyType type, double value, Labels labels = {}) {
  MetricFamily made = new_family(name, help, type);
  add_metric(made, value, std::move(labels));
  return made;
}

// The fields of /proc/self/stat after the program's name, which may contain anything.
struct ProcessStat {
  double cpu_seconds = 0.0;
  double start_seconds = 0.0;  // counted from the machine's start
  double virtual_bytes = 0.0;
  double resident_bytes = 0.0;
  double num_threads = 0.0;
};

ProcessStat read_process_stat() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  // Numbers of fields in proc(5). The fields read here begin with the state, which is the third.
  constexpr int kUserTime = 14, kSystemTime = 15, kThreads = 20, kStart = 22;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  ProcessStat stat;
  std::string state;
  rest >> state;
  double value = 0.0;
  for (int field = 4; field <= kStart && rest >> value; ++field) {
    if (field == kUserTime || field == kSystemTime) stat.cpu_seconds += value / ticks;
    if (field == kThreads) stat.num_threads = value;
    if (field == kStart) stat.start_seconds = value / ticks;
  }
  double virtual_pages = 0.0, resident_pages = 0.0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page_bytes = static_cast<double>(::sysconf(_SC_PAGESIZE));
  stat.virtual_bytes = virtual_pages * page_bytes;
  stat.resident_bytes = resident_pages * page_bytes;
  return stat;
}

double boot_time() {
  timespec since_boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(std::time(nullptr)) - static_cast<double>(since_boot.tv_sec);
}

// Avoids std::filesystem, whose iterator ends the process if memory runs out.
double num_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  double count = 0.0;
  for (const dirent* each = folder ? ::readdir(folder.get()) : nullptr; each != nullptr; each = ::readdir(folder.get()))
    count += each->d_name[0] == '.' ? 0.0 : 1.0;
  return count;
}

void add_process(std::vector<MetricFamily>& all) {
  const ProcessStat stat = read_process_stat();
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  const auto gauge = [&](const char* name, const char* help, double value) {
    all.push_back(single(name, help, FamilyType::kGauge, value));
  };
  all.push_back(single("process_cpu_seconds_total", "Processor time used", FamilyType::kCounter, stat.cpu_seconds));
  gauge("process_resident_memory_bytes", "Resident memory", stat.resident_bytes);
  gauge("process_virtual_memory_bytes", "Virtual memory", stat.virtual_bytes);
  gauge("process_start_time_seconds", "When the process started, Unix time", boot_time() + stat.start_seconds);
  gauge("process_threads", "Threads", stat.num_threads);
  gauge("process_open_fds", "Open file descriptors", num_descriptors());
  gauge("process_max_fds", "The most that may be open", static_cast<double>(descriptors.rlim_cur));
}

void add_models(std::vector<MetricFamily>& all, const ModelTable& models) {
  MetricFamily states = new_family("quire:model_state", "1 for the state that a model is in", FamilyType::kGauge);
  MetricFamily caches =
      new_family("vllm:cache_config_info", "The KV cache of each model that is loaded", FamilyType::kGauge);
  for (const TableEntry& model : models.entries()) {
    for (const ModelState state : kStates) {
      add_metric(states, state == model.state ? 1.0 : 0.0,
                 {{"model_name", model.name}, {"state", model_state_name(state)}});
    }
    if (!model.running) continue;
    const CacheConfig cache = model.running->cache_config();
    add_metric(caches, 1.0,
               {{"block_size", std::to_string(cache.block_size)},
                {"cache_dtype", cache.dtype},
                {"enable_prefix_caching", cache.prefix_caching ? "True" : "False"},
                {"model_name", model.name},
                {"num_gpu_blocks", std::to_string(cache.num_blocks)}});
  }
  if (!states.metric.empty()) all.push_back(std::move(states));
  if (!caches.metric.empty()) all.push_back(std::move(caches));
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names)
    out += (out.empty() ? "" : ",") + name;
  return out;
}

void add_adapters(std::vector<MetricFamily>& all, const ModelTable& models) {
  MetricFamily requests =
      new_family("vllm:lora_requests_info", "The adapters in use and those that requests wait for", FamilyType::kGauge);
  MetricFamily used = new_family("quire:adapter_bytes", "Memory of adapters", FamilyType::kGauge);
  MetricFamily most = new_family("quire:adapter_memory_bytes", "The most that adapters may take", FamilyType::kGauge);
  MetricFamily loads = new_family("quire:adapter_loads_total", "Adapters read from their files", FamilyType::kCounter);
  MetricFamily dropped =
      new_family("quire:adapters_dropped_total", "Adapters that left the memory to make room", FamilyType::kCounter);
  for (const TableEntry& model : models.entries()) {
    if (!model.running || model.running->adapters() == nullptr) continue;
    const AdapterPool::Stats stats = model.running->adapters()->stats();
    const Labels labels{{"model_name", model.name}};
    add_metric(requests, static_cast<double>(std::time(nullptr)),
               {{"max_lora", std::to_string(model.adapters.size())},
                {"model_name", model.name},
                {"running_lora_adapters", joined(stats.running)},
                {"waiting_lora_adapters", joined(stats.waiting)}});
    add_metric(used, static_cast<double>(stats.used_bytes), labels);
    add_metric(most, static_cast<double>(stats.max_bytes), labels);
    add_metric(loads, static_cast<double>(stats.num_loads), labels);
    add_metric(dropped, static_cast<double>(stats.num_dropped), labels);
  }
  for (MetricFamily* family : {&requests, &used, &most, &loads, &dropped})
    if (!family->metric.empty()) all.push_back(std::move(*family));
}

// Hits of decoded pictures, which all models share, and of embedding rows by model.
MetricFamily image_hits(const MediaStore::Stats& stats, const ModelTable* models) {
  MetricFamily hits =
      new_family("quire:image_cache_hits_total", "Images that were remembered, by what was", FamilyType::kCounter);
  add_metric(hits, static_cast<double>(stats.num_hits), {{"level", "decoded"}});
  for (const TableEntry& model : models != nullptr ? models->entries() : std::vector<TableEntry>()) {
    if (!model.running) continue;
    add_metric(hits, static_cast<double>(model.running->stats().num_media_found),
               {{"level", "rows"}, {"model_name", model.name}});
  }
  return hits;
}

void add_media(std::vector<MetricFamily>& all, const MediaService& media, const ModelTable* models) {
  const MediaStore::Stats stats = media.stats();
  all.push_back(single("quire:images_total", "Images that were decoded", FamilyType::kCounter,
                       static_cast<double>(stats.num_pieces)));
  MetricFamily refused = new_family("quire:images_rejected_total", "Images that were refused", FamilyType::kCounter);
  for (std::size_t i = 0; i < kNumMediaRefusals; ++i)
    add_metric(refused, static_cast<double>(stats.num_refused[i]),
               {{"reason", media_refusal_name(static_cast<MediaRefusal>(i))}});
  all.push_back(std::move(refused));
  all.push_back(image_hits(stats, models));
  all.push_back(single("vllm:mm_cache_queries_total", "Images looked up among the decoded ones", FamilyType::kCounter,
                       static_cast<double>(stats.num_hits + stats.num_pieces)));
  all.push_back(single("vllm:mm_cache_hits_total", "Images found there", FamilyType::kCounter,
                       static_cast<double>(stats.num_hits)));
  all.push_back(single("quire:image_bytes", "Memory of decoded images", FamilyType::kGauge,
                       static_cast<double>(stats.num_bytes)));
  all.push_back(single("quire:images_waiting", "Images that wait for a media thread", FamilyType::kGauge,
                       static_cast<double>(media.num_waiting())));
}

void add_text_pool(std::vector<MetricFamily>& all, const TextPool::Stats& stats) {
  MetricFamily waiting =
      new_family("quire:text_queue_jobs", "Requests that wait for a text thread", FamilyType::kGauge);
  MetricFamily time = new_family("quire:text_seconds_total", "Time of the text threads", FamilyType::kCounter);
  for (std::size_t i = 0; i < kNumTextLanes; ++i) {
    add_metric(waiting, static_cast<double>(stats.num_waiting[i]), {{"lane", kLaneNames[i]}});
    add_metric(time, stats.seconds[i], {{"lane", kLaneNames[i]}});
  }
  all.push_back(std::move(waiting));
  all.push_back(std::move(time));
}

// A template, so that a build without batches has none of it.
template <class Counts>
void add_batches(std::vector<MetricFamily>& all, const Counts& counts) {
  const auto gauge = [&](const char* name, const char* help, std::int64_t value) {
    all.push_back(single(name, help, FamilyType::kGauge, static_cast<double>(value)));
  };
  gauge("quire:batch_requests_waiting", "Requests of batches in progress without an answer", counts.num_waiting);
  gauge("quire:batch_requests_running", "Of them, those that were given to the engine", counts.num_out);
  gauge("quire:stored_files", "Files of clients and of batches", counts.num_files);
  gauge("quire:stored_file_bytes", "Bytes that files and batches take of batches.max_bytes", counts.num_bytes);
  MetricFamily answered =
      new_family("quire:batch_requests_total", "Requests of batches that were answered", FamilyType::kCounter);
  add_metric(answered, static_cast<double>(counts.num_completed), {{"result", "completed"}});
  add_metric(answered, static_cast<double>(counts.num_failed), {{"result", "failed"}});
  all.push_back(std::move(answered));
  all.push_back(single("quire:batch_output_tokens_total", "Tokens generated for batches, counted with their answers",
                       FamilyType::kCounter, static_cast<double>(counts.usage.output)));
  MetricFamily batches = new_family("quire:batches", "Batches by status", FamilyType::kGauge);
  for (const BatchStatus status : kBatchStatuses) {
    const char* const name = batch_status_name(status);
    const auto found = counts.by_status.find(name);
    add_metric(batches, found == counts.by_status.end() ? 0.0 : static_cast<double>(found->second), {{"status", name}});
  }
  all.push_back(std::move(batches));
}

void add_shared_quotas(std::vector<MetricFamily>& all, const SharedQuotaCounts& counts) {
  all.push_back(single("quire:shared_quotas_up",
                       "1 while the store that keys' rates are shared through answers; 0: this daemon holds its part",
                       FamilyType::kGauge, counts.is_up ? 1.0 : 0.0));
  all.push_back(single("quire:shared_quota_replicas", "Daemons that share the rates, as the store said last",
                       FamilyType::kGauge, static_cast<double>(counts.num_replicas)));
  all.push_back(single("quire:shared_quota_failures_total",
                       "Times that the store of the rates was given up for a while", FamilyType::kCounter,
                       static_cast<double>(counts.num_failures)));
}

}  // namespace

std::vector<MetricFamily> state_families(const ServerState& state) {
  std::vector<MetricFamily> all;
  all.push_back(
      single("quire:build_info", "The build that runs", FamilyType::kGauge, 1.0, {{"version", QUIRE_VERSION}}));
  add_process(all);
  const auto table = state.models();
  if (table != nullptr) {
    add_models(all, *table);
    add_adapters(all, *table);
  }
  if (state.text != nullptr) add_text_pool(all, state.text->stats());
  if (is_built(Module::kImages) && state.media != nullptr) add_media(all, *state.media, table.get());
  if constexpr (is_built(Module::kBatches)) {
    if (state.batches != nullptr) add_batches(all, state.batches->counts());
  }
  all.push_back(single("quire:request_body_bytes", "Bodies that are being received or wait to be parsed",
                       FamilyType::kGauge, static_cast<double>(state.bodies.num_bytes())));
  all.push_back(single("quire:request_bodies_cut_total", "Uploads that were refused to make room for others",
                       FamilyType::kCounter, static_cast<double>(state.bodies.num_cut())));
  all.push_back(single("quire:unread_answer_bytes", "Answers that clients have not read yet", FamilyType::kGauge,
                       static_cast<double>(state.answers.num_bytes())));
  all.push_back(single("quire:unread_answers_cut_total", "Connections that were reset to make room for others",
                       FamilyType::kCounter, static_cast<double>(state.answers.num_cut())));
  MetricFamily reloads =
      new_family("quire:reloads_total", "Reloads of the configuration by result", FamilyType::kCounter);
  const std::int64_t failed = state.reloads.num_failed.load();
  add_metric(reloads, static_cast<double>(state.reloads.num_all.load() - failed), {{"result", "success"}});
  add_metric(reloads, static_cast<double>(failed), {{"result", "failure"}});
  all.push_back(std::move(reloads));
  all.push_back(single("quire:last_reload_successful", "0 where the last reload was refused", FamilyType::kGauge,
                       state.reloads.last_failed.load() ? 0.0 : 1.0));
  all.push_back(single("quire:log_lines_dropped_total", "Lines of the log that its reader did not take in time",
                       FamilyType::kCounter, static_cast<double>(log::num_dropped())));
  if (state.shared_quotas.is_shared) add_shared_quotas(all, state.shared_quotas);
  if (const auto settings = state.settings(); settings->tls) {
    all.push_back(single("quire:tls_certificate_expiry_timestamp_seconds", "When the certificate expires, Unix time",
                         FamilyType::kGauge, static_cast<double>(settings->tls->expiry())));
  }
  return all;
}

double resident_bytes() {
  return read_process_stat().resident_bytes;
}

}  // namespace quire
