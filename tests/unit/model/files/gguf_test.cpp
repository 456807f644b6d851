#include "core/model/formats/gguf/gguf.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <limits>

#include "core/base/result.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/material.h"

using Catch::Contains;
using namespace quire;
using quire::test::GgufBytes;

namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

void require_gguf_refused(const std::vector<std::byte>& bytes, const std::string& reason) {
  std::string message;
  try {
    GgufFile::parse(bytes, "test.gguf");
  } catch (const StartupError& error) {
    message = error.what();
  }
  CHECK_THAT(message, Catch::StartsWith("test.gguf: ") && Contains(reason));
  CHECK_THAT(message, !Contains("\n"));
}

GgufBytes one_key(std::uint32_t type) {
  return GgufBytes().header(0, 1).key("k", type);
}

// A file with a single F32 tensor of 4x2 at offset 0 of the data.
GgufBytes one_tensor(const std::vector<std::uint64_t>& shape, std::uint32_t type, std::uint64_t offset) {
  return GgufBytes().header(1, 0).tensor("t", shape, type, offset);
}

}  // namespace

TEST_CASE("A GGUF file's scalars and arrays are read by name and kind", "[gguf]") {
  GgufBytes file;
  file.header(0, 8, 2);
  file.key("u8", kGgufU8).put(std::uint8_t{200});
  file.key("i32", kGgufI32).put(std::int32_t{-5});
  file.key("f32", kGgufF32).put(0.5F);
  file.key("whole", kGgufF32).put(10000.0F);
  file.key("flag", kGgufBool).put(std::uint8_t{1});
  file.key("text", kGgufString).text("héllo");
  file.key("big", kGgufU64).u64(kHuge);
  file.key("words", kGgufArray).u32(kGgufString).u64(2).text("a").text("");
  const auto gguf = GgufFile::parse(file.bytes(), "test.gguf");
  CHECK(gguf->version() == 2);
  CHECK(gguf->get_int("u8") == 200);
  CHECK(gguf->get_int("i32") == -5);
  CHECK(gguf->get_float("f32") == 0.5);
  CHECK_THROWS_WITH(gguf->get_int("f32"), "test.gguf: the metadata key 'f32' is 0.5, not a whole number");
  CHECK(gguf->get_int("whole") == 10000);
  CHECK(gguf->get_float("i32") == -5.0);
  CHECK(gguf->get_bool("flag") == true);
  CHECK(gguf->get_int("flag") == 1);
  CHECK(gguf->get_string("text") == "héllo");
  CHECK_THROWS_WITH(gguf->get_int("big"), Contains("not a whole number"));
  CHECK_FALSE(gguf->get_int("absent"));
  REQUIRE(gguf->get_strings("words") != nullptr);
  CHECK(*gguf->get_strings("words") == std::vector<std::string_view>{"a", ""});
  CHECK_THROWS_WITH(gguf->get_strings("text"), Contains("not a list of strings"));
  CHECK(gguf->get_strings("absent") == nullptr);
}

TEST_CASE("A GGUF value counts as what it stands for, whatever type it has", "[gguf]") {
  const GgufValue texts = std::vector<std::string_view>{"a"};
  for (const GgufValue& two : {GgufValue(std::uint64_t{2}), GgufValue(std::int64_t{2}), GgufValue(2.0),
                               GgufValue(std::string_view("2")), GgufValue(std::vector<std::uint64_t>{2})})
    CHECK(integer_of(two) == 2);
  CHECK_FALSE(integer_of(GgufValue(std::vector<std::uint64_t>{2, 3})));
  CHECK_FALSE(integer_of(GgufValue(std::string_view("2x"))));
  CHECK_FALSE(integer_of(texts));
  CHECK(number_of(GgufValue(std::string_view("0.5"))) == 0.5);
  CHECK_FALSE(number_of(GgufValue(true)));
  for (const GgufValue& no : {GgufValue(false), GgufValue(std::uint64_t{0}), GgufValue(std::int64_t{0}), GgufValue(0.0),
                              GgufValue(std::string_view("false")), GgufValue(std::string_view("0"))})
    CHECK(flag_of(no) == false);
  CHECK(flag_of(GgufValue(std::string_view("True"))) == true);
  for (const GgufValue& none : {GgufValue(std::uint64_t{2}), GgufValue(std::string_view("no")), texts})
    CHECK_FALSE(flag_of(none));
}

TEST_CASE("A GGUF file's tensors point at their bytes", "[gguf]") {
  GgufBytes file;
  file.header(3, 0).tensor("a", {4, 2}, 0, 0).tensor("unknown", {256}, 15, 32).tensor("q", {32, 1}, 8, 64).align();
  const std::size_t data = file.bytes().size();
  file.zeros(64 + 34);
  const auto gguf = GgufFile::parse(file.bytes(), "test.gguf");
  const auto* a = gguf->find_tensor("a");
  REQUIRE(a != nullptr);
  CHECK(a->type == DType::kF32);
  CHECK(a->shape == std::vector<std::int64_t>{4, 2});
  CHECK(a->data.data() == file.bytes().data() + data);
  CHECK(a->data.size() == 32);
  const auto* unknown = gguf->find_tensor("unknown");
  REQUIRE(unknown != nullptr);
  CHECK_FALSE(unknown->type);
  CHECK(unknown->ggml_type == 15);
  CHECK(unknown->data.empty());
  CHECK(gguf->find_tensor("q")->data.size() == 34);
  CHECK(gguf->find_tensor("b") == nullptr);
}

TEST_CASE("A GGUF file that lies is refused with one line that says where", "[gguf]") {
  require_gguf_refused({}, "the file ends within the magic number");
  require_gguf_refused(GgufBytes().raw("GGML").zeros(40).bytes(), "does not begin with 'GGUF'");
  require_gguf_refused(GgufBytes().header(0, 0, 1).bytes(), "version 1 is not supported");
  require_gguf_refused(GgufBytes().header(0, 0, 3U << 24).bytes(), "big-endian");
  require_gguf_refused(GgufBytes().header(kHuge, 0).bytes(), "claims 18446744073709551615 tensors");
  require_gguf_refused(GgufBytes().header(0, kHuge).bytes(), "claims 18446744073709551615 metadata keys");
  require_gguf_refused(GgufBytes().header(60000, 0).zeros(100).bytes(), "more than its bytes can describe");
  require_gguf_refused(GgufBytes().header(0, 1).u64(kHuge).bytes(), "a key claims");
  require_gguf_refused(GgufBytes().header(0, 1).text("").u32(kGgufU8).u32(0).bytes(), "key is empty");
  require_gguf_refused(GgufBytes().header(0, 2).key("k", kGgufU32).u32(1).key("k", kGgufU32).u32(2).bytes(),
                       "'k' occurs twice");
  require_gguf_refused(one_key(13).zeros(64).bytes(), "unknown value type 13");
  require_gguf_refused(one_key(kGgufBool).zeros(0).put(std::uint8_t{7}).bytes(), "the boolean 7");
  require_gguf_refused(one_key(kGgufString).u64(kHuge).bytes(), "the file ends within a string");
  require_gguf_refused(one_key(kGgufU64).u32(1).bytes(), "the file ends within a value");
  require_gguf_refused(one_key(kGgufArray).u32(kGgufU64).u64(kHuge / 8).bytes(), "claims an array of");
  require_gguf_refused(one_key(kGgufArray).u32(kGgufU8).u64(100).zeros(99).bytes(), "ends within the 100 elements");
  require_gguf_refused(one_key(kGgufArray).u32(kGgufString).u64(2).zeros(8).bytes(), "it is incomplete, download");
  require_gguf_refused(one_key(kGgufArray).u32(kGgufArray).u64(1).zeros(64).bytes(), "array of arrays");
  require_gguf_refused(one_key(kGgufArray).u32(77).u64(1).zeros(64).bytes(), "unknown type 77");
  require_gguf_refused(GgufBytes().header(0, 1).key("a\nb\x01", 99).bytes(), "a\\x0ab\\x01");
}

TEST_CASE("A GGUF file whose tensors lie is refused", "[gguf]") {
  require_gguf_refused(one_tensor({1, 1, 1, 1, 1}, 0, 0).zeros(64).bytes(), "claims 5 dimensions");
  require_gguf_refused(one_tensor({4, 0}, 0, 0).zeros(64).bytes(), "claims the dimension 0");
  require_gguf_refused(one_tensor({1ULL << 40, 1ULL << 40}, 0, 0).zeros(64).bytes(), "claims the dimension");
  require_gguf_refused(one_tensor({1ULL << 63, 2}, 0, 0).zeros(64).bytes(), "claims the dimension");
  require_gguf_refused(one_tensor({1ULL << 55}, 0, 0).align().zeros(64).bytes(), "it is incomplete, download it again");
  require_gguf_refused(one_tensor({4, 2}, 0, 0).align().zeros(31).bytes(), "needs 32 bytes and the file has 31 left");
  require_gguf_refused(one_tensor({4, 2}, 0, 4).align().zeros(64).bytes(), "not a multiple of the alignment");
  require_gguf_refused(one_tensor({4, 2}, 0, 64).align().zeros(64).bytes(), "begins at 64 of 64");
  require_gguf_refused(one_tensor({4, 2}, 0, kHuge - 31).align().zeros(64).bytes(), "begins at");
  require_gguf_refused(one_tensor({33}, 8, 0).align().zeros(64).bytes(), "rows of 33 elements");
  require_gguf_refused(GgufBytes().header(1, 0).tensor("", {4}, 0, 0).align().zeros(64).bytes(), "no name");
  require_gguf_refused(
      GgufBytes().header(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).align().zeros(64).bytes(),
      "'t' occurs twice");
  require_gguf_refused(
      GgufBytes().header(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).align().zeros(64).bytes(),
      "'a' and 'b' overlap");
  for (const std::uint32_t alignment : {0U, 1U, 4U, 24U, 1U << 21}) {
    require_gguf_refused(GgufBytes().header(0, 1).key("general.alignment", kGgufU32).u32(alignment).bytes(),
                         "general.alignment");
  }
  require_gguf_refused(GgufBytes().header(0, 1).key("general.alignment", kGgufString).text("wide").bytes(),
                       "general.alignment");
}

TEST_CASE("Every truncation of a GGUF file is refused", "[gguf]") {
  GgufBytes file;
  file.header(1, 2).key("a", kGgufArray).u32(kGgufString).u64(2).text("x").text("yz").key("b", kGgufF32).put(1.0F);
  file.tensor("t", {4, 2}, 0, 0).align().zeros(32);
  REQUIRE_NOTHROW(GgufFile::parse(file.bytes(), "whole.gguf"));
  for (std::size_t length = 0; length < file.bytes().size(); ++length) {
    const std::vector<std::byte> cut(file.bytes().begin(), file.bytes().begin() + static_cast<std::ptrdiff_t>(length));
    CHECK_THROWS_AS(GgufFile::parse(cut, "cut.gguf"), StartupError);
  }
}

TEST_CASE("Paths that are no GGUF file are refused by name", "[gguf]") {
  CHECK_THROWS_WITH(GgufFile::open("/nonexistent/model.gguf"),
                    Contains("/nonexistent/model.gguf: cannot be opened: No such file"));
  CHECK_THROWS_WITH(GgufFile::open(std::filesystem::temp_directory_path()), Contains("is not a regular file"));
  CHECK_THROWS_WITH(GgufFile::open("/dev/null"), Contains("is not a regular file"));
}

TEST_CASE("A published GGUF file is read whole", "[gguf]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/stories260K-gguf/stories260K.gguf");
  const auto gguf = GgufFile::open(path);
  CHECK(gguf->version() == 3);
  CHECK(gguf->file_bytes() == 1185376);
  CHECK(gguf->tensors().size() == 48);
  CHECK(gguf->get_string("general.architecture") == "llama");
  CHECK(gguf->get_int("llama.embedding_length") == 64);
  REQUIRE(gguf->get_strings("tokenizer.ggml.tokens") != nullptr);
  CHECK(gguf->get_strings("tokenizer.ggml.tokens")->size() == 512);
  const auto* embeddings = gguf->find_tensor("token_embd.weight");
  REQUIRE(embeddings != nullptr);
  CHECK(embeddings->shape == std::vector<std::int64_t>{64, 512});
  CHECK(embeddings->data.size() == 64 * 512 * 4);
}
