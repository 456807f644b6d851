// BatchFolder: a folder of files and batches of its own for one test, and what puts requests into it. One thread at a
// time.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "server/api/common/operation.h"
#include "server/batch/batch_store.h"

namespace quire::test {

struct BatchFolder {
  BatchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-batches-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    options.directory = name;
  }
  ~BatchFolder() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
  BatchOptions options;
};

inline std::string request_line(const std::string& custom_id, const std::string& url = "/v1/completions") {
  return R"({"custom_id":")" + custom_id + R"(","method":"POST","url":")" + url + R"(","body":{"prompt":"p"}})";
}

inline std::string request_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += request_line("r" + std::to_string(i)) + "\n";
  return text;
}

inline std::string put_file(BatchStore& store, const std::string& text, const std::string& owner = "",
                            std::int64_t expires_at = 1'000'000) {
  auto upload = store.files().begin(owner);
  REQUIRE(upload);
  REQUIRE((*upload)->write(text));
  StoredFile fields;
  fields.filename = "a.jsonl";
  fields.purpose = "batch";
  fields.created_at = 1;
  fields.expires_at = expires_at;
  const auto file = store.files().finish(**upload, fields);
  REQUIRE(file);
  return file->id;
}

inline std::string make_batch(BatchStore& store, const std::string& input, const std::string& owner = "",
                              std::int64_t expires_at = 100'000) {
  BatchRecord fields;
  fields.owner = owner;
  fields.endpoint = "/v1/completions";
  fields.input_file_id = input;
  fields.completion_window = "24h";
  fields.expires_at = expires_at;
  const auto made = store.create(fields, 10);
  REQUIRE(made);
  return made->id;
}

// Works until only requests without answers are left.
inline void work_off(BatchStore& store, std::int64_t now = 20) {
  while (store.work(now)) {
  }
}

inline std::optional<BatchLine> next_line(BatchStore& store) {
  return store.next_line([](const std::string&) { return true; });
}

inline Result<void> answer(BatchStore& store, const BatchLine& line, bool failed = false) {
  AnswerRecord record;
  record.failed = failed;
  record.usage = {3, 1, 2, 0};
  record.text = answer_line(line.request.custom_id, "req", failed ? 400 : 200, R"({"ok":true})");
  return store.answer(line, record);
}

inline std::string content_of(BatchStore& store, const std::string& id, const std::string& owner = "") {
  const StoredFile* const file = store.files().find(id, owner);
  if (file == nullptr) return "";
  const auto opened = store.files().open(*file);
  REQUIRE(opened);
  const auto text = opened->read(0, static_cast<std::size_t>(file->bytes) + 1);
  REQUIRE(text);
  return *text;
}

// The custom_ids of a file's lines, each of which must be JSON.
inline std::vector<std::string> ids_in(const std::string& text) {
  std::vector<std::string> ids;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);
    ids.push_back(Json::parse(text.substr(begin, end - begin))["custom_id"].get<std::string>());
    begin = end + 1;
  }
  return ids;
}

// Each request of the batch is in one of its two files, once.
inline void check_answered_once(BatchStore& store, const std::string& batch_id, int count,
                                const std::string& owner = "") {
  const BatchRecord* const batch = store.find(batch_id, owner);
  REQUIRE(batch != nullptr);
  REQUIRE(batch->has_ended());
  std::multiset<std::string> found;
  const auto completed = ids_in(content_of(store, batch->output_file_id, owner));
  const auto failed = ids_in(content_of(store, batch->error_file_id, owner));
  found.insert(completed.begin(), completed.end());
  found.insert(failed.begin(), failed.end());
  std::multiset<std::string> wanted;
  for (int i = 0; i < count; ++i)
    wanted.insert("r" + std::to_string(i));
  CHECK(found == wanted);
  CHECK(batch->num_completed == static_cast<std::int64_t>(completed.size()));
  CHECK(batch->num_failed == static_cast<std::int64_t>(failed.size()));
}

}  // namespace quire::test
