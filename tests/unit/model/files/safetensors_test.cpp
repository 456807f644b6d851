#include "core/model/formats/hf/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "core/base/result.h"
#include "tests/support/temporary_folder.h"

using Catch::Contains;
using namespace quire;
using quire::test::TemporaryFolder;

namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + std::string(data_bytes, '\1');
}

std::vector<StoredTensor> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "test.safetensors");
}

void require_refused(const std::string& file, const std::string& reason) {
  CHECK_THROWS_WITH(parse(file), Catch::StartsWith("test.safetensors: ") && Contains(reason) && !Contains("\n"));
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("A safetensors file's tensors point at their bytes", "[safetensors]") {
  const std::string file =
      file_of("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("a", "F32", "[2,3]", "[0,24]") + "," +
                  tensor("b", "BF16", "[4]", "[24,32]") + "," + tensor("n", "I64", "[]", "[32,40]") + "}",
              40);
  const auto tensors = parse(file);
  REQUIRE(tensors.size() == 3);
  CHECK(tensors[0].name == "a");
  CHECK(tensors[0].type == DType::kF32);
  CHECK(tensors[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors[0].data.size() == 24);
  CHECK(tensors[1].type == DType::kBF16);
  CHECK(tensors[1].data.data() == tensors[0].data.data() + 24);
  CHECK_FALSE(tensors[2].type);
  CHECK(tensors[2].type_name == "I64");
}

TEST_CASE("A safetensors file that lies is refused with one line", "[safetensors]") {
  require_refused("a\1c", "ends within the header's length");
  require_refused(std::string(8, '\xff'), "claims a header of 18446744073709551615 bytes");
  require_refused(file_of("{", 0), "is not valid JSON");
  require_refused(file_of("[]", 0), "is not a JSON object");
  require_refused(file_of(R"({"a":[[[[[[1]]]]]]})", 0), "nested deeper");
  require_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "not a map of strings");
  require_refused(file_of(R"({"a":{}})", 0), "has no dtype, shape and data_offsets");
  require_refused(file_of("{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("a", "F32", "[1]", "[4,8]") + "}", 8),
                  "'a' occurs twice");
  require_refused(file_of("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4),
                  "has 4 bytes where its shape and type need 8");
  require_refused(file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 4), "of 4 bytes of data");
  require_refused(file_of("{" + tensor("a", "F32", "[1]", "[4,0]") + "}", 4), "from 4 to 0");
  require_refused(file_of("{" + tensor("a", "F32", "[-1]", "[0,4]") + "}", 4), "no count");
  require_refused(file_of("{" + tensor("a", "F32", "[1.5]", "[0,4]") + "}", 4), "no count");
  require_refused(file_of("{" + tensor("a", "F32", "[9007199254740993,9007199254740993]", "[0,4]") + "}", 4),
                  "claims the dimension");
  require_refused(file_of("{" + tensor("a", "F32", "[0,9007199254740993,9007199254740993]", "[0,4]") + "}", 4),
                  "bytes where");
  require_refused(
      file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12),
      "overlaps");
  require_refused(file_of("{" + tensor("a", "F32", "[1]", "[4,8]") + "}", 8), "a hole before tensor 'a'");
  require_refused(file_of("{" + tensor("a", "F32", "[1]", "[0,4]") + "}", 8), "bytes after the last tensor");
}

TEST_CASE("Shards are found by their index and must hold what it says", "[safetensors]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("has neither model.safetensors nor"));
  folder.write("one.safetensors", file_of("{" + tensor("a", "F32", "[1]", "[0,4]") + "}", 4));
  folder.write("two.safetensors", file_of("{" + tensor("b", "F16", "[1]", "[0,2]") + "}", 2));
  const std::string index = "model.safetensors.index.json";
  folder.write(index, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  CHECK(open_safetensors_directory(folder.path()).size() == 2);
  folder.write(index, R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("'b' is not in one.safetensors"));
  folder.write(index, R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})");
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("the shard three.safetensors is missing"));
  folder.write(index, R"({"weight_map":{"a":"../one.safetensors"}})");
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("no file name"));
  folder.write(index, R"({"metadata":{}})");
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("no 'weight_map'"));
  folder.write("two.safetensors", file_of("{" + tensor("a", "F32", "[1]", "[0,4]") + "}", 4));
  folder.write(index, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  CHECK_THROWS_WITH(open_safetensors_directory(folder.path()), Contains("'a' is in two shards"));
}
