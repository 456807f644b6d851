#include "server/batch/batch_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/files/writing.h"
#include "core/base/log.h"
#include "server/api/common/operation.h"

namespace quire {

namespace {

constexpr std::size_t kMaxRecordText = 1 << 20;

Error batch_not_found(const std::string& id) {
  return Error{ErrorKind::kNotFound, "No batch found with id '" + id + "'.", "batch_not_found", "batch_id",
               std::nullopt};
}

}  // namespace

BatchStore::BatchStore(const BatchOptions& options)
    : options_(options),
      batches_folder_(std::filesystem::path(options.directory) / "batches"),
      use_(options),
      files_(options, use_) {
  const std::filesystem::path folder = options.directory;
  std::error_code error;
  make_private_folder(batches_folder_, error);
  const std::string lock = (folder / "lock").string();
  if (!error) lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (!error && lock_ < 0) error = std::error_code(errno, std::system_category());
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error) {
    throw StartupError(fmt::format("batches.directory: '{}' cannot be used: {}", options.directory, error.message()));
  }
}

BatchStore::~BatchStore() {
  active_.clear();
  batches_.clear();
  close();
}

Result<bool> BatchStore::open() {
  if (is_open_) return true;
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) return false;
  if (auto loaded = files_.load(); !loaded) return tl::make_unexpected(loaded.error());
  load_batches();
  is_open_ = true;
  const auto num_active = active_.size();
  if (num_active > 0) log::info("batches: {} continue after the restart", num_active);
  return true;
}

void BatchStore::close() {
  is_open_ = false;
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
}

void BatchStore::load_batches() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(batches_folder_, error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".json") continue;
    auto file = DiskFile::read_from(path);
    auto text = file ? file->read(0, kMaxRecordText) : Result<std::string>(tl::make_unexpected(file.error()));
    auto record = text ? decode_batch(*text) : std::nullopt;
    if (!record || record->id != path.stem()) {
      log::warn("batches: {} is damaged: it is left out", path.string());
      continue;
    }
    Batch& batch = batches_[record->id];
    if (record->has_ended()) {
      batch.record = *std::move(record);
      ::unlink(records_path(batch.record.id).c_str());
    } else {
      batch.active = activate(*std::move(record));
    }
  }
}

std::unique_ptr<ActiveBatch> BatchStore::activate(BatchRecord record) {
  const std::string id = record.id;
  const bool is_running = record.is_running();
  auto active = std::make_unique<ActiveBatch>(options_, files_, use_, records_path(id), std::move(record));
  if (is_running) {
    if (auto started = active->start(); !started) active->failure = std::move(started.error());
  }
  active_[id] = active.get();
  return active;
}

Result<void> BatchStore::save(const BatchRecord& record) const {
  return replace_file(record_path(record.id), encode_batch(record));
}

Result<void> BatchStore::change(Batch& batch, BatchRecord record) {
  if (auto saved = save(record); !saved) return saved;
  batch.active->set_record(std::move(record));
  return {};
}

Result<void> BatchStore::end(Batch& batch, BatchRecord record) {
  if (auto saved = save(record); !saved) return saved;
  log::info("batches: {} {}: {} requests, {} completed, {} failed", record.id, batch_status_name(record.status),
            record.num_requests, record.num_completed, record.num_failed);
  batch.active->remove_records();
  active_.erase(record.id);
  batch.active.reset();
  batch.record = std::move(record);
  return {};
}

bool BatchStore::needs_file(const std::string& id) const {
  return std::any_of(active_.begin(), active_.end(),
                     [&](const auto& each) { return each.second->record().input_file_id == id; });
}

Result<void> BatchStore::remove_file(const std::string& id, const std::string& owner) {
  if (files_.find(id, owner) == nullptr) {
    return tl::make_unexpected(
        Error{ErrorKind::kNotFound, "No such File object: " + id, "file_not_found", "file_id", std::nullopt});
  }
  if (needs_file(id)) {
    return tl::make_unexpected(Error{ErrorKind::kConflict,
                                     "The file is the input of a batch that has not ended: cancel that first",
                                     "file_in_use", "file_id", std::nullopt});
  }
  files_.remove(id);
  return {};
}

void BatchStore::forget(const std::string& id) {
  ::unlink(record_path(id).c_str());
  batches_.erase(id);
}

// Removes the owner's oldest ended batch if the owner has too many.
Result<void> BatchStore::make_place(const std::string& owner) {
  const std::vector<const BatchRecord*> all = of_owner(owner);
  if (static_cast<std::int64_t>(all.size()) < options_.max_batches_per_key) return {};
  const auto oldest = std::find_if(all.begin(), all.end(), [](const BatchRecord* each) { return each->has_ended(); });
  if (oldest == all.end()) {
    return tl::make_unexpected(Error{ErrorKind::kRateLimited,
                                     fmt::format("{} batches are in progress, which is the limit.", all.size()),
                                     "too_many_batches", "", std::chrono::seconds(60)});
  }
  forget((*oldest)->id);
  return {};
}

Result<BatchRecord> BatchStore::create(BatchRecord fields, std::int64_t now) {
  const StoredFile* const input = files_.find(fields.input_file_id, fields.owner);
  if (input == nullptr) {
    return invalid("No such File object: " + fields.input_file_id, "input_file_id", "file_not_found");
  }
  if (input->purpose != "batch") {
    return invalid("The input file's purpose is '" + input->purpose + "', and must be 'batch'.", "input_file_id",
                   "invalid_purpose");
  }
  if (auto place = make_place(fields.owner); !place) return tl::make_unexpected(place.error());
  fields.id = make_id("batch_");
  fields.status = BatchStatus::kValidating;
  fields.created_at = now;
  if (auto saved = save(fields); !saved) return tl::make_unexpected(saved.error());
  Batch& batch = batches_[fields.id];
  batch.active = activate(fields);
  return fields;
}

const BatchRecord* BatchStore::find(const std::string& id, const std::string& owner) const {
  const auto found = batches_.find(id);
  return found == batches_.end() || found->second.now().owner != owner ? nullptr : &found->second.now();
}

std::vector<const BatchRecord*> BatchStore::of_owner(const std::string& owner) const {
  std::vector<const BatchRecord*> found;
  for (const auto& [id, batch] : batches_) {
    if (batch.now().owner == owner) found.push_back(&batch.now());
  }
  std::sort(found.begin(), found.end(), [](const BatchRecord* a, const BatchRecord* b) {
    return std::tie(a->created_at, a->id) < std::tie(b->created_at, b->id);
  });
  return found;
}

Result<BatchRecord> BatchStore::cancel(const std::string& id, const std::string& owner, std::int64_t now) {
  if (find(id, owner) == nullptr) return tl::make_unexpected(batch_not_found(id));
  Batch& batch = batches_.find(id)->second;
  const BatchRecord& record = batch.now();
  if (record.status == BatchStatus::kCancelling) return record;
  if (record.status != BatchStatus::kValidating && record.status != BatchStatus::kInProgress) {
    return tl::make_unexpected(Error{
        ErrorKind::kConflict, fmt::format("Cannot cancel a batch with status '{}'.", batch_status_name(record.status)),
        "batch_not_cancellable", "batch_id", std::nullopt});
  }
  begin_cancel(batch, now);
  return batch.now();
}

std::optional<BatchLine> BatchStore::next_line(const std::function<bool(const std::string& owner)>& may_run) {
  std::map<std::string, std::vector<ActiveBatch*>> by_owner;
  for (const auto& [id, active] : active_) {
    if (active->record().is_running() && active->is_started() && !active->failure)
      by_owner[active->record().owner].push_back(active);
  }
  const auto older = [](const ActiveBatch* a, const ActiveBatch* b) {
    return std::tie(a->record().created_at, a->record().id) < std::tie(b->record().created_at, b->record().id);
  };
  auto next = by_owner.upper_bound(last_owner_);
  for (std::size_t i = 0; i < by_owner.size(); ++i, ++next) {
    if (next == by_owner.end()) next = by_owner.begin();
    if (!may_run(next->first)) continue;
    std::sort(next->second.begin(), next->second.end(), older);
    std::string owner = next->first;  // copied here: a line that was taken must not be lost
    for (ActiveBatch* const active : next->second) {
      auto line = active->next();
      if (!line) active->failure = std::move(line.error());
      if (!line || !*line) continue;
      last_owner_.swap(owner);
      return std::move(*line);
    }
  }
  return std::nullopt;
}

bool BatchStore::is_wanted(const BatchLine& line) const {
  const auto found = active_.find(line.batch_id);
  return found != active_.end() && found->second->record().is_running();
}

Result<void> BatchStore::answer(const BatchLine& line, AnswerRecord answer) {
  answer.number = line.number;
  auto kept = active_.find(line.batch_id)->second->answer(answer);
  if (!kept) return kept;
  ++(answer.failed ? num_failed_ : num_completed_);
  usage_ += answer.usage;
  return kept;
}

void BatchStore::give_back(BatchLine&& line) {
  const auto found = active_.find(line.batch_id);
  if (found != active_.end()) found->second->give_back(std::move(line));
}

void BatchStore::drop(const BatchLine& line) {
  const auto found = active_.find(line.batch_id);
  if (found != active_.end()) found->second->drop();
}

BatchStore::Counts BatchStore::counts() const {
  Counts counts;
  counts.num_files = static_cast<std::int64_t>(files_.count());
  counts.num_bytes = use_.total();
  counts.num_active = static_cast<std::int64_t>(active_.size());
  counts.num_completed = num_completed_;
  counts.num_failed = num_failed_;
  counts.usage = usage_;
  for (const auto& [id, batch] : batches_)
    ++counts.by_status[batch_status_name(batch.now().status)];
  for (const auto& [id, active] : active_) {
    const BatchRecord& record = active->record();
    if (record.is_running()) counts.num_waiting += record.num_requests - record.num_completed - record.num_failed;
    counts.num_out += active->num_out();
  }
  return counts;
}

}  // namespace quire
