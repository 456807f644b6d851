#include "core/model/tools/inspect.h"

#include <catch2/catch.hpp>

#include "tests/support/material.h"

using namespace quire;

TEST_CASE("The page of models says what the registry holds", "[model][docs]") {
  // Update it with: quire-dev architectures > deploy/docs/models.md
  CHECK(test::read_file(test::source_folder() / "deploy/docs/models.md") == models_page());
}
