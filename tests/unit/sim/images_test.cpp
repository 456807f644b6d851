// Images in simulated traffic: their encoding is cut into slices beside steps, and remembered.
#include <catch2/catch.hpp>
#include <fstream>

#include "core/sim/simulation.h"
#include "tests/support/temporary_folder.h"

namespace quire::test {
namespace {

using sim::SimOptions;
using sim::SimReport;
using sim::TraceImage;
using sim::TraceRequest;

Result<std::unique_ptr<sim::TraceSource>> trace_of(const std::string& lines) {
  const TemporaryFolder folder;
  std::ofstream(folder / "trace.jsonl") << lines;
  return sim::open_trace((folder / "trace.jsonl").string(), 1.0);
}

SimOptions options_of_test() {
  SimOptions options;
  options.num_blocks = 1000;
  options.scheduler.target_itl_ms = 50.0;
  options.price = {.fixed = 0.008, .stream = 0.0003, .prompt_token = 0.0001};
  return options;
}

SimReport report_of(const SimOptions& options, const std::string& lines) {
  auto source = trace_of(lines);
  REQUIRE(source);
  auto report = sim::simulate(options, **source);
  REQUIRE(report);
  return *std::move(report);
}

TEST_CASE("a trace's line has images with tokens, seconds and an id", "[sim]") {
  const auto source = trace_of(
      R"({"timestamp": 0, "input_length": 900, "output_length": 5, "images": [[256, 0.5, 7], [128, 1e-1, 8]]})"
      "\n"
      R"({"timestamp": 5, "input_length": 900, "output_length": 5, "hash_ids": [1], "images": [[256, 0.5, 7, 600]]})"
      "\n"
      R"({"timestamp": 6, "input_length": 9, "output_length": 5, "images": []})");
  REQUIRE(source);
  TraceRequest request;
  REQUIRE((*source)->next(request));
  REQUIRE(request.images.size() == 2);
  CHECK(request.images[0].num_tokens == 256);
  CHECK(request.images[0].seconds == 0.5);
  CHECK(request.images[0].id == 7);
  CHECK(request.images[0].begin == 0);
  CHECK(request.images[1].begin == 256);
  const auto first = sim::prompt_tokens(request, 0);
  CHECK(first[0] == first[255]);
  CHECK(first[255] != first[256]);
  CHECK(first[383] != first[384]);
  REQUIRE((*source)->next(request));
  CHECK(request.images[0].begin == 600);
  CHECK(sim::prompt_tokens(request, 1)[600] == first[0]);
  REQUIRE((*source)->next(request));
  CHECK(request.images.empty());
  for (const char* wrong : {"7", "[7]", "[[1, 2]]", "[[1, 2, 3]", "[[0, 1, 2]]", "[[1, -1, 2]]", "[[1, 1, -2]]",
                            "[[9, 1, 2]]", "[[4, 1, 2], [5, 1, 3]]", "[[2, 1, 2, 4], [2, 1, 3, 5]]", "[[1, x, 2]]"}) {
    INFO(wrong);
    CHECK_FALSE(
        trace_of(std::string(R"({"timestamp": 0, "input_length": 8, "output_length": 5, "images": )") + wrong + "}"));
  }
}

TEST_CASE("an image's encoding leaves streams their target and other requests their turn", "[sim]") {
  const SimReport report = report_of(
      options_of_test(), R"({"timestamp": 0, "input_length": 10, "output_length": 200})"
                         "\n"
                         R"({"timestamp": 500, "input_length": 600, "output_length": 2, "images": [[512, 2.0, 1]]})"
                         "\n"
                         R"({"timestamp": 600, "input_length": 10, "output_length": 2})");
  CHECK(report.num_images == 1);
  CHECK(report.num_images_encoded == 1);
  CHECK(report.encoder_s == Approx(2.0));
  CHECK(report.itl_s.max() <= 0.05 * 1.1);  // prices are learned from steps
  CHECK(report.ttft_s.max() >= 2.0);
  CHECK(report.ttft_s.percentile(50) <= 3 * 0.05);
  CHECK(report.num_output_tokens == 204);
}

TEST_CASE("an image alone is encoded within the bound of a step", "[sim]") {
  SimOptions options = options_of_test();
  options.scheduler.target_itl_ms = 0.0;
  options.scheduler.max_step_time_ms = 100.0;
  const SimReport report =
      report_of(options, R"({"timestamp": 0, "input_length": 600, "output_length": 1, "images": [[512, 2.0, 1]]})"
                         "\n"
                         R"({"timestamp": 1000, "input_length": 10, "output_length": 1})");
  CHECK(report.ttft_s.max() >= 2.0);
  CHECK(report.ttft_s.percentile(10) <= 0.3);
  CHECK(report.busy_s >= 2.0);
}

TEST_CASE("a request that arrives in the middle of an encoder's slice ends it", "[sim]") {
  SimOptions options = options_of_test();
  options.scheduler.target_itl_ms = 0.0;
  options.scheduler.max_step_time_ms = 200.0;
  const SimReport report =
      report_of(options, R"({"timestamp": 0, "input_length": 600, "output_length": 1, "images": [[512, 2.0, 1]]})"
                         "\n"
                         R"({"timestamp": 1050, "input_length": 10, "output_length": 1})");
  CHECK(report.ttft_s.percentile(10) <= 0.02);  // its own step, and not the rest of the slice
  CHECK(report.encoder_s == Approx(2.0));
  CHECK(report.num_images_encoded == 1);
}

TEST_CASE("images are remembered within a budget of rows", "[sim]") {
  SimOptions options = options_of_test();
  options.prefix_caching = false;  // else blocks behind the same image need no rows
  std::string lines;
  for (const int id : {1, 2, 1, 1})
    lines += R"({"timestamp": )" + std::to_string(lines.size() * 100) +
             R"(, "input_length": 300, "output_length": 2, "images": [[256, 0.1, )" + std::to_string(id) + "]]}\n";
  const auto num_encoded = [&](std::int64_t media_rows) {
    options.media_rows = media_rows;
    const SimReport report = report_of(options, lines);
    CHECK(report.num_images == 4);
    CHECK(report.num_output_tokens == 8);
    return report.num_images_encoded;
  };
  CHECK(num_encoded(512) == 2);
  CHECK(num_encoded(256) == 3);
  CHECK(num_encoded(255) == 4);
  options.prefix_caching = true;
  CHECK(num_encoded(0) <= 3);
}

}  // namespace
}  // namespace quire::test
