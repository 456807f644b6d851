// Files and batches on disk: their content after any end of the process, and after damage.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "tests/server/batch/batch_folder.h"

using namespace quire;
using namespace quire::test;

namespace {

std::unique_ptr<BatchStore> opened(const BatchFolder& folder) {
  auto store = std::make_unique<BatchStore>(folder.options);
  const auto is_open = store->open();
  REQUIRE(is_open);
  REQUIRE(*is_open);
  return store;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::filesystem::path records_of(const BatchFolder& folder, const std::string& batch) {
  return folder.path / "batches" / (batch + ".answers");
}

void answer_all(BatchStore& store) {
  while (const auto line = next_line(store))
    REQUIRE(answer(store, *line));
  work_off(store);
}

// Writes beyond this size of a file fail half way, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a batch's requests are given out once, answered, and put into its two files", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string batch = make_batch(*store, put_file(*store, request_lines(50)));
  CHECK(store->find(batch, "")->status == BatchStatus::kValidating);
  work_off(*store);
  CHECK(store->find(batch, "")->status == BatchStatus::kInProgress);
  CHECK(store->find(batch, "")->num_requests == 50);
  std::set<std::string> seen;
  int number = 0;
  while (const auto line = next_line(*store)) {
    CHECK(seen.insert(line->request.custom_id).second);
    CHECK(line->request.body == R"({"prompt":"p"})");
    REQUIRE(answer(*store, *line, ++number % 10 == 0));
  }
  CHECK(seen.size() == 50);
  work_off(*store);
  const BatchRecord* const ended = store->find(batch, "");
  CHECK(ended->status == BatchStatus::kCompleted);
  CHECK(ended->num_failed == 5);
  CHECK(ended->usage.input == 150);
  check_answered_once(*store, batch, 50);
  CHECK_FALSE(std::filesystem::exists(records_of(folder, batch)));
}

TEST_CASE("a process that ends at any point loses nothing and answers nothing twice", "[batches]") {
  // Leaves the store like kill -9: only finished writes are there.
  const BatchFolder folder;
  std::string batch;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(40)));
  }
  for (int life = 0; life < 60; ++life) {
    const auto store = opened(folder);
    if (store->find(batch, "")->has_ended()) break;
    // Varies the number of slices and answers; some requests are given out as the process ends.
    for (int slice = 0; slice <= life % 3; ++slice)
      store->work(20);
    for (int i = 0; i < life % 5; ++i) {
      const auto line = next_line(*store);
      if (line && i % 3 != 2) REQUIRE(answer(*store, *line));
    }
  }
  const auto store = opened(folder);
  answer_all(*store);
  check_answered_once(*store, batch, 40);
  CHECK(store->find(batch, "")->status == BatchStatus::kCompleted);
}

TEST_CASE("records that end at any byte, or have garbage behind them, lose at most the one they cut", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  std::string records;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(4)));
    work_off(*store);
    for (int i = 0; i < 3; ++i)
      REQUIRE(answer(*store, *next_line(*store)));
    records = read_text(records_of(folder, batch));
  }
  for (std::size_t length = 0; length <= records.size(); ++length) {
    for (const std::string& garbage : {std::string(), std::string("\0\xff\x7f garbage", 11), std::string(5000, 'x')}) {
      write_text(records_of(folder, batch), records.substr(0, length) + garbage);
      const auto store = opened(folder);
      const std::string whole = records.substr(0, length);
      const auto num_whole = std::count(whole.begin(), whole.end(), '\n');
      const auto num_known = store->find(batch, "")->num_completed;
      // A record is whole even without the end of its line.
      CHECK((num_known == num_whole || (garbage.empty() && num_known == num_whole + 1)));
      const auto line = next_line(*store);
      REQUIRE(line);
      REQUIRE(answer(*store, *line));
      CHECK(store->find(batch, "")->num_completed == num_known + 1);
      const auto again = std::make_unique<BatchFolder>();
      std::filesystem::copy(
          folder.path, again->path,
          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
      const auto next_life = opened(*again);
      CHECK(next_life->find(batch, "")->num_completed == num_known + 1);
    }
  }
}

TEST_CASE("a record with a changed byte is none, and its request is called again", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  std::string records;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(3)));
    work_off(*store);
    for (int i = 0; i < 3; ++i)
      REQUIRE(answer(*store, *next_line(*store)));
    records = read_text(records_of(folder, batch));
  }
  for (std::size_t place = 0; place < records.size(); place += 7) {
    std::string changed = records;
    changed[place] = changed[place] == '5' ? '6' : '5';
    write_text(records_of(folder, batch), changed);
    const auto store = opened(folder);
    CHECK(store->find(batch, "")->num_completed < 3);
    CHECK(next_line(*store));
  }
  // Another batch's record is invalid here.
  CHECK_FALSE(decode_record("batch_other", records.substr(0, records.find('\n'))));
  CHECK(decode_record(batch, records.substr(0, records.find('\n'))));
}

TEST_CASE("a request that is recorded twice is answered once", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(2)));
    work_off(*store);
    REQUIRE(answer(*store, *next_line(*store)));
  }
  const std::string records = read_text(records_of(folder, batch));
  write_text(records_of(folder, batch), records + records);
  const auto store = opened(folder);
  answer_all(*store);
  check_answered_once(*store, batch, 2);
}

TEST_CASE("a full disk stops a batch half way through a record, and it continues when there is space", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(3)));
    work_off(*store);
    REQUIRE(answer(*store, *next_line(*store)));
    const auto size = std::filesystem::file_size(records_of(folder, batch));
    const auto line = next_line(*store);
    REQUIRE(line);
    {
      const FileLimit limit(size + 20);  // twenty bytes of the next record fit
      const auto refused = answer(*store, *line);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == "storage_full");
      CHECK(std::filesystem::file_size(records_of(folder, batch)) == size + 20);
      CHECK_FALSE(answer(*store, *line));
    }
    CHECK(store->find(batch, "")->num_completed == 1);
    REQUIRE(answer(*store, *line));
    CHECK(store->find(batch, "")->num_completed == 2);
  }
  const auto store = opened(folder);
  CHECK(store->find(batch, "")->num_completed == 2);
  answer_all(*store);
  check_answered_once(*store, batch, 3);
}

TEST_CASE("a full disk while the files are written delays a batch's end", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string batch = make_batch(*store, put_file(*store, request_lines(30)));
  work_off(*store);
  while (const auto line = next_line(*store))
    REQUIRE(answer(*store, *line));
  {
    const FileLimit limit(700);
    work_off(*store, 21);
    CHECK_FALSE(store->find(batch, "")->has_ended());
  }
  work_off(*store, 22);
  CHECK_FALSE(store->find(batch, "")->has_ended());  // not retried at once
  work_off(*store, 40);
  check_answered_once(*store, batch, 30);
}

TEST_CASE("the bounds on what is stored hold for uploads and answers, and for one owner by itself", "[batches]") {
  BatchFolder folder;
  folder.options.max_bytes_per_key = 40'000;
  folder.options.max_bytes = 60'000;
  const auto store = opened(folder);
  const std::string text = request_lines(100);  // about 9 kB
  put_file(*store, text, "a");
  auto upload = store->files().begin("a");
  REQUIRE(upload);
  const auto refused = (*upload)->write(std::string(30'000, 'x'));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "storage_full");
  upload->reset();
  put_file(*store, std::string(20'000, 'x'), "b");
  auto beyond = store->files().begin("c");
  REQUIRE(beyond);
  CHECK_FALSE((*beyond)->write(std::string(25'000, 'x')));
  beyond->reset();
  // Answers that do not fit wait and are not lost.
  const std::string batch = make_batch(*store, put_file(*store, request_lines(90), "a"), "a");
  work_off(*store);
  int num_kept = 0;
  std::optional<BatchLine> line;
  while ((line = next_line(*store)) && answer(*store, *line))
    ++num_kept;
  REQUIRE(line);
  CHECK(num_kept < 90);
  CHECK(store->counts().num_bytes <= 60'000);
  CHECK(store->find(batch, "a")->num_completed == num_kept);
}

TEST_CASE("damaged descriptions and batches are left out, and the others are there", "[batches]") {
  const BatchFolder folder;
  std::string file;
  std::string batch;
  {
    const auto store = opened(folder);
    file = put_file(*store, request_lines(2));
    batch = make_batch(*store, file);
  }
  const std::string good = read_text(folder.path / "batches" / (batch + ".json"));
  for (std::size_t length = 0; length < good.size(); length += 5)
    write_text(folder.path / "batches" / ("batch_cut" + std::to_string(length) + ".json"), good.substr(0, length));
  write_text(folder.path / "files" / "file-x.json", R"({"id":"../../etc/passwd","owner":""})");
  write_text(folder.path / "files" / "file-y.json", "[1,2");
  const auto store = opened(folder);
  CHECK(store->of_owner("").size() == 1);
  CHECK(store->files().count() == 1);
  answer_all(*store);
  work_off(*store);
  answer_all(*store);
  check_answered_once(*store, batch, 2);
}

TEST_CASE("an input is refused with what is wrong with its lines", "[batches]") {
  BatchFolder folder;
  folder.options.max_line_bytes = 400;
  folder.options.max_lines = 6;
  const auto store = opened(folder);
  const auto errors_of = [&](const std::string& text) {
    const std::string batch = make_batch(*store, put_file(*store, text));
    work_off(*store);
    const BatchRecord record = *store->find(batch, "");
    CHECK(record.status == BatchStatus::kFailed);
    CHECK(record.failed_at == 20);
    return record.errors;
  };
  const auto first = [&](const std::string& text) { return errors_of(text).front(); };
  CHECK(first("").code == "empty_file");
  CHECK(first("\n\n").code == "empty_file");
  CHECK(first("not json\n").code == "invalid_json_line");
  CHECK(first("[1]\n").code == "invalid_json_line");
  CHECK(first("\xff\xfe\n").code == "invalid_json_line");
  CHECK(first(R"({"method":"POST"})").param == "custom_id");
  CHECK(first(R"({"custom_id":7,"method":"POST"})").code == "invalid_type");
  CHECK(first(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})").code == "invalid_method");
  CHECK(first(request_line("a", "/v1/embeddings")).code == "invalid_url");
  CHECK(first(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":[]})").param == "body");
  CHECK(first(request_line(std::string(300, 'x')) + std::string(200, ' ')).code == "line_too_long");
  CHECK(first(request_lines(7)).code == "too_many_requests");
  const auto all = errors_of(request_line("a") + "\n\n" + request_line("a") + "\nnot json\n");
  REQUIRE(all.size() == 2);
  CHECK(all[0].code == "duplicate_custom_id");
  CHECK(all[0].line == 3);
  CHECK(all[1].line == 4);
  CHECK(errors_of(std::string(2000, '{') + "\n" + std::string(10'000, '\n') + "x").size() == 2);
}

TEST_CASE("line ends of either kind, a byte order mark and a last line without an end are read", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string text =
      "\xEF\xBB\xBF" + request_line("r0") + "\r\n \t\r\n" + request_line("r1") + "\n" + request_line("r2");
  const std::string batch = make_batch(*store, put_file(*store, text));
  work_off(*store);
  answer_all(*store);
  check_answered_once(*store, batch, 3);
}

TEST_CASE("a cancelled batch has what was answered, and the rest in its error file", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string batch = make_batch(*store, put_file(*store, request_lines(10), "a"), "a");
  work_off(*store);
  for (int i = 0; i < 4; ++i)
    REQUIRE(answer(*store, *next_line(*store)));
  const auto out = next_line(*store);
  REQUIRE(out);
  CHECK_FALSE(store->cancel(batch, "b", 30));
  const auto cancelling = store->cancel(batch, "a", 30);
  REQUIRE(cancelling);
  CHECK(cancelling->status == BatchStatus::kCancelling);
  CHECK_FALSE(store->is_wanted(*out));
  CHECK_FALSE(next_line(*store));
  work_off(*store, 31);
  CHECK(store->find(batch, "a")->status == BatchStatus::kCancelling);  // a request is still given out
  store->drop(*out);
  work_off(*store, 32);
  CHECK(store->find(batch, "a")->status == BatchStatus::kCancelled);
  CHECK(store->find(batch, "a")->num_completed == 4);
  check_answered_once(*store, batch, 10, "a");
  const std::string errors = content_of(*store, store->find(batch, "a")->error_file_id, "a");
  CHECK(errors.find("batch_cancelled") != std::string::npos);
  const auto again = store->cancel(batch, "a", 40);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind == ErrorKind::kConflict);
}

TEST_CASE("a batch whose time is over expires, also while no process ran", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  {
    const auto store = opened(folder);
    batch = make_batch(*store, put_file(*store, request_lines(5)), "", 1000);
    work_off(*store);
    REQUIRE(answer(*store, *next_line(*store)));
  }
  const auto store = opened(folder);
  work_off(*store, 1000);
  CHECK(store->find(batch, "")->status == BatchStatus::kExpired);
  CHECK(store->find(batch, "")->expired_at == 1000);
  check_answered_once(*store, batch, 5);
  const std::string errors = content_of(*store, store->find(batch, "")->error_file_id);
  CHECK(errors.find("batch_expired") != std::string::npos);
}

TEST_CASE("owners take turns, an owner's batches go by age, and one owner sees nothing of another", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string file_a = put_file(*store, request_lines(4), "a");
  const std::string older = make_batch(*store, file_a, "a");
  const std::string of_b = make_batch(*store, put_file(*store, request_lines(4), "b"), "b");
  work_off(*store);
  std::string order;
  for (int i = 0; i < 6; ++i)
    order += next_line(*store)->owner;
  CHECK(order == "ababab");
  CHECK(store->next_line([](const std::string& owner) { return owner == "b"; })->owner == "b");
  CHECK(store->find(older, "b") == nullptr);
  CHECK(store->files().find(file_a, "b") == nullptr);
  CHECK(store->files().of_owner("b").size() == 1);
  CHECK(store->of_owner("b").size() == 1);
  BatchRecord stolen;
  stolen.owner = "b";
  stolen.input_file_id = file_a;
  stolen.endpoint = "/v1/completions";
  CHECK_FALSE(store->create(stolen, 10));
  CHECK_FALSE(store->remove_file(file_a, "b"));
  const auto in_use = store->remove_file(file_a, "a");
  REQUIRE_FALSE(in_use);
  CHECK(in_use.error().code == "file_in_use");
}

TEST_CASE("a request that is returned is handed out again", "[batches]") {
  const BatchFolder folder;
  const auto store = opened(folder);
  const std::string batch = make_batch(*store, put_file(*store, request_lines(3)));
  work_off(*store);
  auto line = next_line(*store);
  REQUIRE(line);
  const auto number = line->number;
  store->give_back(*std::move(line));
  const auto again = next_line(*store);
  REQUIRE(again);
  CHECK(again->number == number);
  REQUIRE(answer(*store, *again));
  answer_all(*store);
  check_answered_once(*store, batch, 3);
}

TEST_CASE("a batch whose input is gone fails and says so", "[batches]") {
  const BatchFolder folder;
  std::string batch;
  std::string file;
  {
    const auto store = opened(folder);
    file = put_file(*store, request_lines(3));
    batch = make_batch(*store, file);
    work_off(*store);
  }
  std::filesystem::remove(folder.path / "files" / (file + ".json"));
  const auto store = opened(folder);
  CHECK_FALSE(next_line(*store));
  work_off(*store, 30);
  work_off(*store, 40);
  CHECK(store->find(batch, "")->status == BatchStatus::kFailed);
  CHECK(store->find(batch, "")->errors.front().code == "input_file_gone");
}

TEST_CASE("batches of one owner are bounded: the oldest that ended goes, none in progress does", "[batches]") {
  BatchFolder folder;
  folder.options.max_batches_per_key = 2;
  const auto store = opened(folder);
  const std::string file = put_file(*store, request_lines(1));
  const std::string first = make_batch(*store, file);
  work_off(*store);
  answer_all(*store);
  const std::string second = make_batch(*store, file);
  make_batch(*store, file);
  CHECK(store->find(first, "") == nullptr);
  CHECK(store->find(second, "") != nullptr);
  BatchRecord more = *store->find(second, "");
  const auto refused = store->create(more, 10);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "too_many_batches");
}

TEST_CASE("one process has the folder at a time, and the next one takes it over", "[batches]") {
  const BatchFolder folder;
  auto first = opened(folder);
  BatchStore second(folder.options);
  const auto refused = second.open();
  REQUIRE(refused);
  CHECK_FALSE(*refused);
  first->close();
  const auto taken = second.open();
  REQUIRE(taken);
  CHECK(*taken);
}

TEST_CASE("a folder that cannot be made ends the start", "[batches]") {
  BatchOptions options;
  options.directory = "/proc/none/batches";
  CHECK_THROWS_AS(BatchStore(options), StartupError);
}
