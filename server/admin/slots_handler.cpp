#include "server/admin/handlers.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "core/base/log.h"
#include "core/kv/moves/chain_file.h"
#include "server/admin/model_handlers.h"
#include "server/api/common/errors.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/api/fields/admin.h"
#include "server/models/running_model.h"
#include "server/ops/keys/admin.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"
#include "server/wire/response.h"

namespace quire {

namespace {

Json slot_json(std::int64_t id, std::int64_t context, const SequenceView* sequence, const ReportReader& reader) {
  Json task(-1);
  if (sequence != nullptr) task = reader.sees_id_of(sequence->key_name) ? Json(sequence->request_id) : Json(id);
  Json slot{{"id", id},
            {"id_task", std::move(task)},
            {"n_ctx", context},
            {"speculative", false},
            {"is_processing", sequence != nullptr}};
  if (sequence == nullptr) return slot;
  slot["n_prompt_tokens"] = sequence->num_prompt_tokens;
  slot["n_prompt_tokens_processed"] = std::min(sequence->num_computed, sequence->num_prompt_tokens);
  slot["next_token"] = {{"has_next_token", true}, {"n_decoded", sequence->num_tokens - sequence->num_prompt_tokens}};
  return slot;
}

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 128;

// A client's order for a slot and the engine's result. Shared by the engine's and the admin's threads.
struct SlotTask {
  SlotOrder::What what = SlotOrder::What::kSave;
  std::int32_t slot = 0;
  std::string name;
  fs::path path;
  std::int64_t max_bytes = 0;
  std::int64_t num_bytes_read = 0;
  std::weak_ptr<RunningModel> running;
  Clock::time_point began = Clock::now();
  KeptChain chain;
  std::atomic<bool> has_ended{false};  // the engine is done, and `chain` is its result
};

// Accepts plain names of files in the directory: no separator, and no meaning for a shell.
bool is_file_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && name.front() != '-' &&
         !name.ends_with(".part") && std::all_of(name.begin(), name.end(), is_allowed);
}

std::int64_t directory_bytes(const fs::path& directory, const fs::path& without) {
  std::int64_t bytes = 0;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    if (entry->path() == without || !entry->is_regular_file(ignored)) continue;
    const std::uintmax_t size = entry->file_size(ignored);
    if (!ignored) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

Result<std::int32_t> slot_number(const std::string& path) {
  const std::string_view digits = std::string_view(path).substr(path.rfind('/') + 1);
  std::int32_t slot = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
  if (error == std::errc() && end == digits.data() + digits.size() && slot >= 0) return slot;
  return invalid("A slot's number is an integer of 0 or more", "id_slot");
}

Result<SlotOrder::What> wanted_action(const std::string& query) {
  constexpr std::pair<std::string_view, SlotOrder::What> kActions[] = {{"action=save", SlotOrder::What::kSave},
                                                                       {"action=restore", SlotOrder::What::kRestore},
                                                                       {"action=erase", SlotOrder::What::kErase}};
  for (const auto& [text, what] : kActions) {
    if (query == text) return what;
  }
  return invalid("'action' must be save, restore or erase", "action");
}

// Finds the file and, for a save, its largest size.
Result<void> find_file(const SlotFileOptions& options, FieldReader& reader, SlotTask& task) {
  const auto name = reader.string(fields::admin::kFilename);
  if (!name) reader.missing(fields::admin::kFilename);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!is_file_name(*name)) {
    return invalid("'filename' must be a plain file name of letters, digits, '-', '_' and '.'", "filename");
  }
  task.name = *name;
  task.path = fs::path(options.directory) / *name;
  task.max_bytes = options.max_bytes;
  if (task.what == SlotOrder::What::kSave) task.max_bytes -= directory_bytes(options.directory, task.path);
  if (task.max_bytes > 0) return {};
  return failure(ErrorKind::kConflict, "server.slots.max_bytes is reached: delete saved slots", "slots_full");
}

Result<void> read_file(SlotTask& task) {
  auto chain = read_chain(task.path, task.max_bytes);
  if (!chain) return tl::make_unexpected(chain.error());
  task.num_bytes_read = chain_bytes(*chain);
  task.chain = *std::move(chain);
  return {};
}

void order_slot(const std::shared_ptr<SlotTask>& task, const std::function<void(std::optional<Error>)>& done) {
  SlotOrder order{
      .what = task->what, .slot = task->slot, .max_bytes = task->max_bytes, .chain = std::move(task->chain)};
  const auto report = [task, done](Result<KeptChain> result) {
    std::optional<Error> error;
    if (result) {
      task->chain = *std::move(result);
    } else {
      error = std::move(result).error();
    }
    task->has_ended = true;
    done(std::move(error));
  };
  order.done = std::make_shared<const std::function<void(Result<KeptChain>)>>(report);
  if (const auto running = task->running.lock()) {
    running->order_slot(std::move(order));
  } else {
    done(still_starting());
  }
}

Json timing(const char* name, const SlotTask& task) {
  return Json{{name, std::chrono::duration<double, std::milli>(Clock::now() - task.began).count()}};
}

Result<std::string> slot_outcome(SlotTask& task) {
  if (!task.has_ended) return failure(ErrorKind::kUnavailable, "The client left before the slot was done");
  const auto num_tokens = std::ssize(task.chain.content.tokens);
  Json body{{"id_slot", task.slot}};
  if (task.what == SlotOrder::What::kErase) {
    body["n_erased"] = num_tokens;
    return dump_json(body);
  }
  body["filename"] = task.name;
  if (task.what == SlotOrder::What::kSave) {
    if (const auto written = write_chain(task.path, task.chain); !written) return tl::make_unexpected(written.error());
    body["n_saved"] = num_tokens;
    body["n_written"] = chain_bytes(task.chain);
    body["timings"] = timing("save_ms", task);
  } else {
    body["n_restored"] = num_tokens;
    body["n_read"] = task.num_bytes_read;
    body["timings"] = timing("restore_ms", task);
  }
  return dump_json(body);
}

}  // namespace

Response slots_response(ServerState& state, const ReportReader& reader) {
  const auto table = state.models();
  if (!table || table->entries().empty() || !table->entries().front().running) return error_response(still_starting());
  const TableEntry& model = table->entries().front();
  const auto view = model.running->view();
  Json slots = Json::array();
  for (const SequenceView& sequence : view.sequences) {
    if (sequence.is_running) slots.push_back(slot_json(std::ssize(slots), model.max_model_len, &sequence, reader));
  }
  // The engine lists its sequences on request; until then only their number is known.
  const auto num_running = static_cast<std::int64_t>(model.running->stats().num_running);
  const std::int64_t num_slots = std::max<std::int64_t>(model.served ? model.served->max_num_choices : 0, num_running);
  while (std::ssize(slots) < num_slots) {
    slots.push_back(slot_json(std::ssize(slots), model.max_model_len, nullptr, reader));
    if (std::ssize(slots) <= num_running) slots.back()["is_processing"] = true;
  }
  Response response{200, "application/json", dump_json(slots)};
  response.fields = {{"Cache-Control", "no-store"}};
  return response;
}

Result<AdminTask> act_on_slot(ServerState& state, const Call& call) {
  const SlotFileOptions options = state.settings()->options.slots;
  if (options.directory.empty()) {
    return invalid(
        "Slots are not saved here: the operator can name a folder for them in server.slots.directory. What "
        "is computed is found again by its content, with kv_cache.disk_tier_path after a restart too",
        "action", "unsupported_operation");
  }
  auto task = std::make_shared<SlotTask>();
  const auto what = wanted_action(call.query);
  if (!what) return tl::make_unexpected(what.error());
  task->what = *what;
  const auto slot = slot_number(call.path);
  if (!slot) return tl::make_unexpected(slot.error());
  task->slot = *slot;
  const auto body = parse_json_object(call.body.empty() ? "{}" : call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto table = state.models();
  const auto model = reader.string(fields::admin::kModel);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!table || table->entries().empty()) return tl::make_unexpected(still_starting());
  const auto found = table->entry(model.value_or(""));
  if (!found) return tl::make_unexpected(found.error());
  if (!(*found)->running) return tl::make_unexpected(still_starting());
  task->running = (*found)->running;
  if (task->what != SlotOrder::What::kErase) {
    if (const auto file = find_file(options, reader, *task); !file) return tl::make_unexpected(file.error());
  }
  if (task->what == SlotOrder::What::kRestore) {
    if (const auto read = read_file(*task); !read) return tl::make_unexpected(read.error());
  }
  log::info("admin: {} asks to {} slot {}{}{}", asker(call), call.query.substr(call.query.find('=') + 1), task->slot,
            task->name.empty() ? "" : ": ", task->name);
  return AdminTask{.until = [task](std::function<void(std::optional<Error>)> done) { order_slot(task, done); },
                   .finish = [task] { return slot_outcome(*task); }};
}

}  // namespace quire
