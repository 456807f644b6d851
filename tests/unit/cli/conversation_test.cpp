#include "server/cli/run/conversation.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace quire::cli {
namespace {

TEST_CASE("an attached picture stands before the next question, and comes back with it") {
  std::string folder = (std::filesystem::temp_directory_path() / "quire-image-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/a.png";
  std::ofstream(path, std::ios::binary) << "abc";
  Conversation conversation;
  CHECK(!conversation.attach(folder + "/absent.png"));
  REQUIRE(conversation.attach(path));
  const auto content = [&](const std::string& question) {
    return conversation.body("m", question)["messages"].back()["content"];
  };
  const nlohmann::json asked = content("what?");
  REQUIRE(asked.size() == 2);
  CHECK(asked[0]["image_url"]["url"] == "data:application/octet-stream;base64,YWJj");
  CHECK(asked[1]["text"] == "what?");
  conversation.add("what?", "a picture");
  CHECK(content("and?") == "and?");
  CHECK(conversation.take_back() == "what?");
  CHECK(content("what?") == asked);
  conversation.clear();
  CHECK(content("hi") == "hi");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace quire::cli
