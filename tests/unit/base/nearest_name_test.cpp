#include "core/base/message_text.h"

#include <catch2/catch.hpp>

namespace quire {

TEST_CASE("the nearest name needs the fewest changes", "[base]") {
  CHECK(nearest_name("prot", {"host", "port", "path"}) == "port");  // two letters swapped
  CHECK(nearest_name("", {"ab", "a"}) == "a");
  CHECK(nearest_name("kitten", {"sitting", "mitten"}) == "mitten");
}

TEST_CASE("a likely name is one of which at most a third is written differently", "[base]") {
  CHECK(likely_name("max_tokns", {"max_tokens", "model"}) == "max_tokens");
  CHECK(likely_name("temprature", {"temperature", "top_p"}) == "temperature");
  CHECK_FALSE(likely_name("frobnicate", {"temperature", "top_p"}));
  CHECK_FALSE(likely_name("top_p", {"top_p"}));  // not a misspelling
  CHECK_FALSE(likely_name("x", {}));
}

}  // namespace quire
