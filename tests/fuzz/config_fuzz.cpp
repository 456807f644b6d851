#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/config.h"
#include "kernels/check.h"
#include "tests/fuzz/refusal.h"

// A configuration file: read or refused, and what was read can be printed and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::fuzz::expect_value_or_line([&] {
    quire::Config config;
    quire::load_config_text(config, {reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
    const std::string shown = quire::render_config(config);
    quire::Config again;
    quire::load_config_text(again, shown, "shown.yaml");
    QUIRE_CHECK(quire::render_config(again) == shown, "what is printed means the same");
  });
  return 0;
}
