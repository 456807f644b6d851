#include "server/batch/active_batch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>

namespace quire {

namespace {

constexpr std::int64_t kSliceBytes = 1 << 20;
constexpr std::size_t kMaxErrors = 20;  // most errors that are listed
// A larger record is damaged: no process could have held it in memory.
constexpr std::int64_t kMaxRecordBytes = std::int64_t{1} << 30;

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t") == std::string::npos;
}

void strip_mark(std::string& line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
}

Error input_is_gone() {
  return Error{ErrorKind::kNotFound, "The input file is gone", "input_file_gone", "input_file_id", std::nullopt};
}

}  // namespace

ActiveBatch::ActiveBatch(const BatchOptions& options, FileStore& files, StorageUse& use, std::filesystem::path records,
                         BatchRecord record)
    : options_(options), files_(files), use_(use), records_path_(std::move(records)), record_(std::move(record)) {}

ActiveBatch::~ActiveBatch() {
  restart_files();
  use_.give_back(record_.owner, paid_bytes_);
}

Result<LineReader> ActiveBatch::open_input() {
  const StoredFile* const file = files_.find(record_.input_file_id, record_.owner);
  if (file == nullptr) return tl::make_unexpected(input_is_gone());
  auto opened = files_.open(*file);
  if (!opened) return tl::make_unexpected(opened.error());
  return LineReader(*std::move(opened), options_.max_line_bytes);
}

// Returns false once enough errors were found.
bool ActiveBatch::check_line(const std::string& line, std::int64_t line_number, Found& found) {
  const auto refuse = [&](BatchError error) {
    error.line = line_number;
    found.errors.push_back(std::move(error));
    return found.errors.size() < kMaxErrors;
  };
  if (found.num_requests++ >= options_.max_lines) {
    found.errors.push_back({"too_many_requests",
                            fmt::format("The input has more than {} requests: divide it.", options_.max_lines), "",
                            line_number});
    return false;
  }
  auto request = read_batch_request(line, record_.endpoint);
  if (!request) return refuse(std::move(request.error()));
  const XXH128_hash_t hash = XXH3_128bits(request->custom_id.data(), request->custom_id.size());
  if (custom_ids_.emplace(hash.high64, hash.low64).second) return true;
  return refuse({"duplicate_custom_id",
                 fmt::format("The custom_id '{}' is that of another request: each must be unique within the batch.",
                             request->custom_id),
                 "custom_id", std::nullopt});
}

Result<bool> ActiveBatch::validate(Found& found) {
  if (!input_) {
    auto opened = open_input();
    if (!opened) return tl::make_unexpected(opened.error());
    input_.emplace(*std::move(opened));
    custom_ids_.clear();
    found_ = {};
    line_number_ = 0;
  }
  const std::int64_t until = input_->num_read() + kSliceBytes;
  std::string line;
  bool goes_on = true;
  while (goes_on && input_->num_read() < until) {
    const LineReader::Next next = input_->next(line);
    if (next == LineReader::Next::kFailed) return tl::make_unexpected(input_->error());
    if (next == LineReader::Next::kEnd) {
      if (found_.num_requests == 0) found_.errors.push_back({"empty_file", "The input file has no request.", "", {}});
      goes_on = false;
      break;
    }
    if (++line_number_ == 1) strip_mark(line);
    if (next == LineReader::Next::kTooLong) {
      const std::string message = fmt::format("This line is longer than {} bytes.", options_.max_line_bytes);
      found_.errors.push_back({"line_too_long", message, "", line_number_});
      goes_on = found_.errors.size() < kMaxErrors;
    } else if (!is_blank(line)) {
      goes_on = check_line(line, line_number_, found_);
    }
  }
  if (goes_on) return false;
  input_.reset();
  custom_ids_.clear();
  found = std::move(found_);
  return true;
}

// Reserves twice the record's size: the record is copied to its file before it is deleted.
Result<void> ActiveBatch::take_room(std::int64_t num_bytes) {
  if (auto taken = use_.take(record_.owner, 2 * num_bytes); !taken) return taken;
  paid_bytes_ += 2 * num_bytes;
  return {};
}

void ActiveBatch::count(const AnswerRecord& answer) {
  is_done_[static_cast<std::size_t>(answer.number)] = true;
  ++(answer.failed ? record_.num_failed : record_.num_completed);
  record_.usage += answer.usage;
}

Result<void> ActiveBatch::start() {
  is_done_.assign(static_cast<std::size_t>(record_.num_requests), false);
  record_.num_completed = record_.num_failed = 0;
  record_.usage = {};
  auto opened = DiskFile::append_to(records_path_);
  if (!opened) return tl::make_unexpected(opened.error());
  const auto size = opened->size();
  if (!size) return tl::make_unexpected(size.error());
  use_.give_back(record_.owner, std::exchange(paid_bytes_, 2 * *size));
  use_.add(record_.owner, paid_bytes_);
  is_torn_ = *size > 0;  // an unneeded line end makes an empty line only
  auto reading = DiskFile::read_from(records_path_);
  if (!reading) return tl::make_unexpected(reading.error());
  LineReader reader(*std::move(reading), kMaxRecordBytes);
  std::string line;
  while (true) {
    const LineReader::Next next = reader.next(line);
    if (next == LineReader::Next::kFailed) return tl::make_unexpected(reader.error());
    if (next == LineReader::Next::kEnd) break;
    const auto answer = decode_record(record_.id, line);
    if (!answer || answer->number >= record_.num_requests) continue;
    if (!is_done_[static_cast<std::size_t>(answer->number)]) count(*answer);
  }
  records_ = *std::move(opened);
  return {};
}

Result<std::optional<BatchLine>> ActiveBatch::next() {
  if (!returned_.empty()) {
    std::optional<BatchLine> line(std::move(returned_.front()));
    returned_.pop_front();
    ++num_out_;
    return line;
  }
  if (next_number_ >= record_.num_requests) return std::nullopt;
  if (!input_) {
    auto opened = open_input();
    if (!opened) return tl::make_unexpected(opened.error());
    input_.emplace(*std::move(opened));
    line_number_ = 0;
  }
  try {
    return read_next();
  } catch (const std::bad_alloc&) {
    input_.reset();  // read again: no line is lost
    throw;
  }
}

Result<std::optional<BatchLine>> ActiveBatch::read_next() {
  std::string line;
  while (next_number_ < record_.num_requests) {
    const LineReader::Next next = input_->next(line);
    if (next == LineReader::Next::kFailed || next == LineReader::Next::kEnd) {
      input_.reset();
      return tl::make_unexpected(next == LineReader::Next::kEnd ? input_is_gone() : storage_error("the input", EIO));
    }
    if (line_number_ == 0) strip_mark(line);
    if (is_blank(line)) continue;
    const std::int64_t number = line_number_++;
    if (number < next_number_) continue;  // given out before the input was reopened
    if (is_done_[static_cast<std::size_t>(number)]) {
      next_number_ = number + 1;
      continue;
    }
    auto request = read_batch_request(line, record_.endpoint);
    if (!request) return tl::make_unexpected(storage_error("the input changed", EIO));
    std::optional<BatchLine> taken(BatchLine{record_.id, record_.owner, number, *std::move(request)});
    next_number_ = number + 1;
    ++num_out_;
    return taken;
  }
  return std::nullopt;
}

void ActiveBatch::give_back(BatchLine&& line) {
  returned_.push_back(std::move(line));
  --num_out_;
}

// The remains of an incomplete record, after a failure or a crash, become a line of their own, which fails every
// record's check.
Result<void> ActiveBatch::answer(const AnswerRecord& answer) {
  std::string line = encode_record(record_.id, answer);
  if (is_torn_) line.insert(0, 1, '\n');
  if (auto taken = take_room(static_cast<std::int64_t>(line.size())); !taken) return taken;
  if (auto written = records_.write(line); !written) {
    is_torn_ = true;
    const std::int64_t unused = 2 * static_cast<std::int64_t>(line.size());
    use_.give_back(record_.owner, unused);
    paid_bytes_ -= unused;
    return written;
  }
  is_torn_ = false;
  --num_out_;
  count(answer);
  return {};
}

void ActiveBatch::restart_files() {
  recorded_.reset();
  is_copied_ = false;
  is_written_.clear();
  input_.reset();
  output_.reset();
  errors_.reset();
}

Result<void> ActiveBatch::add_line(bool failed, std::string line) {
  std::shared_ptr<FileUpload>& file = failed ? errors_ : output_;
  if (!file) {
    auto begun = files_.begin(record_.owner, failed ? record_.error_file_id : record_.output_file_id);
    if (!begun) return tl::make_unexpected(begun.error());
    file = *std::move(begun);
  }
  line += '\n';
  return file->write(line);
}

Result<bool> ActiveBatch::copy_records(BatchRecord& ended) {
  const std::int64_t until = recorded_->num_read() + kSliceBytes;
  std::string line;
  while (recorded_->num_read() < until) {
    const LineReader::Next next = recorded_->next(line);
    if (next == LineReader::Next::kFailed) return tl::make_unexpected(recorded_->error());
    if (next == LineReader::Next::kEnd) return true;
    auto answer = decode_record(record_.id, line);
    if (!answer || answer->number >= record_.num_requests) continue;
    const auto place = static_cast<std::size_t>(answer->number);
    if (is_written_[place]) continue;
    is_written_[place] = true;
    if (auto added = add_line(answer->failed, std::move(answer->text)); !added)
      return tl::make_unexpected(added.error());
    ++(answer->failed ? ended.num_failed : ended.num_completed);
    ended.usage += answer->usage;
  }
  return false;
}

Result<bool> ActiveBatch::add_unanswered(const BatchError& unanswered, BatchRecord& ended) {
  if (ended.num_completed + ended.num_failed >= ended.num_requests) return true;
  if (!input_) {
    auto opened = open_input();
    if (!opened) return tl::make_unexpected(opened.error());
    input_.emplace(*std::move(opened));
    line_number_ = 0;
  }
  const std::int64_t until = input_->num_read() + kSliceBytes;
  std::string line;
  while (input_->num_read() < until && line_number_ < record_.num_requests) {
    const LineReader::Next next = input_->next(line);
    if (next == LineReader::Next::kFailed) return tl::make_unexpected(input_->error());
    if (next == LineReader::Next::kEnd) return true;
    if (line_number_ == 0) strip_mark(line);
    if (is_blank(line)) continue;
    const auto place = static_cast<std::size_t>(line_number_++);
    if (is_written_[place]) continue;
    const auto request = read_batch_request(line, record_.endpoint);
    is_written_[place] = true;
    auto added =
        add_line(true, unanswered_line(request ? request->custom_id : "", unanswered.code, unanswered.message));
    if (!added) return tl::make_unexpected(added.error());
    ++ended.num_failed;
  }
  return line_number_ >= record_.num_requests;
}

Result<void> ActiveBatch::finish_files(std::int64_t now, BatchRecord& ended) {
  const std::int64_t kept = record_.output_keep_s > 0
                                ? record_.output_keep_s
                                : std::chrono::duration_cast<std::chrono::seconds>(options_.keep).count();
  const auto finish = [&](const std::shared_ptr<FileUpload>& file, const char* what, std::string& id) -> Result<void> {
    if (!file) {
      id.clear();
      return {};
    }
    StoredFile stored;
    stored.filename = record_.id + what;
    stored.purpose = "batch_output";
    stored.created_at = now;
    stored.expires_at = now + kept;
    const auto finished = files_.finish(*file, std::move(stored));
    if (!finished) return tl::make_unexpected(finished.error());
    id = finished->id;
    return {};
  };
  if (auto done = finish(output_, "_output.jsonl", ended.output_file_id); !done) return done;
  return finish(errors_, "_error.jsonl", ended.error_file_id);
}

Result<bool> ActiveBatch::finalize(const BatchError& unanswered, std::int64_t now, BatchRecord& ended) {
  if (!recorded_) {
    restart_files();
    auto opened = DiskFile::append_to(records_path_);
    if (!opened) return tl::make_unexpected(opened.error());
    recorded_.emplace(*std::move(opened), kMaxRecordBytes);
    is_written_.assign(static_cast<std::size_t>(record_.num_requests), false);
    ended = record_;
    ended.num_completed = ended.num_failed = 0;
    ended.usage = {};
  }
  if (!is_copied_) {
    const auto copied = copy_records(ended);
    if (!copied) return copied;
    is_copied_ = *copied;
    return false;
  }
  const auto added = add_unanswered(unanswered, ended);
  if (!added || !*added) return added;
  if (auto finished = finish_files(now, ended); !finished) return tl::make_unexpected(finished.error());
  output_.reset();
  errors_.reset();
  return true;
}

void ActiveBatch::remove_records() {
  ::unlink(records_path_.c_str());
}

}  // namespace quire
