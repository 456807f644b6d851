// A disk that refuses any one write, sync or rename below files and batches: an upload is refused or stored whole, and
// each request of a batch is answered once, in this process and the next.
#include "tests/server/batch/batch_folder.h"
#include "tests/unit/engine/file_failures.h"

using namespace quire;
using namespace quire::test;

namespace batch_file_failure {

constexpr int kNumLines = 5;
constexpr int kMostRounds = 500;  // more means a hang

std::unique_ptr<BatchStore> open_after_failures(const BatchFolder& folder) {
  auto store = std::make_unique<BatchStore>(folder.options);
  for (int i = 0; i < kMostRounds; ++i) {
    const auto is_open = store->open();
    if (is_open && *is_open) return store;
  }
  FAIL("the folder could not be opened");
  return nullptr;
}

std::optional<std::string> try_upload(BatchStore& store) {
  auto upload = store.files().begin("");
  if (!upload || !(*upload)->write(request_lines(kNumLines))) return std::nullopt;
  StoredFile fields;
  fields.filename = "a.jsonl";
  fields.purpose = "batch";
  fields.created_at = 1;
  fields.expires_at = 1'000'000;
  const auto file = store.files().finish(**upload, fields);
  return file ? std::optional(file->id) : std::nullopt;
}

std::optional<std::string> try_batch(BatchStore& store, const std::string& input) {
  BatchRecord fields;
  fields.endpoint = "/v1/completions";
  fields.input_file_id = input;
  fields.completion_window = "24h";
  fields.expires_at = 100'000;
  const auto made = store.create(fields, 10);
  return made ? std::optional(made->id) : std::nullopt;
}

// The client uploads a refused file again.
template <class Step>
std::string until_done(const Step& step) {
  for (int i = 0; i < 3; ++i) {
    if (const std::optional<std::string> id = step()) return *id;
  }
  FAIL("a step that failed once fails again");
  return "";
}

// Works like BatchService: an answer that could not be stored is stored later.
void work_to_the_end(BatchStore& store, const std::string& batch) {
  std::int64_t now = 20;
  for (int round = 0; round < kMostRounds; ++round, now += 60) {
    const BatchRecord* const record = store.find(batch, "");
    REQUIRE(record != nullptr);
    if (record->has_ended()) return;
    store.work(now);
    while (const auto line = next_line(store)) {
      bool is_kept = false;
      for (int i = 0; i < 3 && !is_kept; ++i)
        is_kept = answer(store, *line).has_value();
      REQUIRE(is_kept);
    }
  }
  FAIL("the batch does not end");
}

}  // namespace batch_file_failure

using namespace batch_file_failure;

TEST_CASE("a disk that fails at any step loses no request of a batch, and answers none twice", "[batches]") {
  const FileStep step = GENERATE(FileStep::kWrite, FileStep::kSync, FileStep::kRename);
  const bool is_restarted = GENERATE(false, true);  // after the step has failed
  int num_failed = 0;
  for (std::int64_t n = 0; n < kMostRounds; ++n) {
    INFO("step " << static_cast<int>(step) << ", number " << n << ", restarted " << is_restarted);
    const BatchFolder folder;
    fail_next_file_step(step, n);
    auto store = open_after_failures(folder);
    const std::string file = until_done([&] { return try_upload(*store); });
    const std::string batch = until_done([&] { return try_batch(*store, file); });
    if (is_restarted) {
      store->work(20);
      if (const auto line = next_line(*store)) static_cast<void>(answer(*store, *line));
      store.reset();
      store = open_after_failures(folder);
    }
    work_to_the_end(*store, batch);
    const bool has_failed = !forget_file_failure();
    check_answered_once(*store, batch, kNumLines);
    store.reset();
    store = open_after_failures(folder);
    check_answered_once(*store, batch, kNumLines);
    num_failed += has_failed ? 1 : 0;
    if (!has_failed) break;
  }
  CHECK(num_failed > 0);
}

TEST_CASE("a disk that refuses writes does not prevent a cancellation, which is written later", "[batches]") {
  const FileStep step = GENERATE(FileStep::kWrite, FileStep::kSync, FileStep::kRename);
  const BatchFolder folder;
  std::string batch;
  {
    auto store = open_after_failures(folder);
    batch = make_batch(*store, put_file(*store, request_lines(kNumLines)));
    work_off(*store);
    const auto out = next_line(*store);
    REQUIRE(out);
    fail_next_file_step(step, 0);
    const auto cancelling = store->cancel(batch, "", 30);
    CHECK_FALSE(forget_file_failure());
    REQUIRE(cancelling);
    CHECK(cancelling->status == BatchStatus::kCancelling);
    CHECK_FALSE(store->is_wanted(*out));
    CHECK_FALSE(next_line(*store));
    CHECK(store->cancel(batch, "", 30)->status == BatchStatus::kCancelling);
    fail_next_file_step(step, 0);
    store->work(31);
    CHECK_FALSE(forget_file_failure());
    store->work(40);
  }
  {
    // The process ended before the files were written.
    auto store = open_after_failures(folder);
    CHECK(store->find(batch, "")->status == BatchStatus::kCancelling);
    work_off(*store, 50);
  }
  const auto store = open_after_failures(folder);
  CHECK(store->find(batch, "")->status == BatchStatus::kCancelled);
  check_answered_once(*store, batch, kNumLines);
}
