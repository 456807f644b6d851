// A call of every tool format as its models write it. Immutable.
#pragma once

#include <string>
#include <vector>

namespace quire::test {

// The parameters of `add`: one required integer, a text that may be null, an object.
extern const char* const kAddSchema;

// A call of `add` whose argument `a` is written where "%" stands; b is "x < y" and c {"d": [true]}, where they are
// there.
struct CallExample {
  const char* format;
  std::string text;
  const char* arguments = R"({"a": 7, "b": "x < y", "c": {"d": [true]}})";
  std::string with(const std::string& value) const {
    const std::size_t at = text.find('%');
    return text.substr(0, at) + value + text.substr(at + 1);
  }
};
std::vector<CallExample> call_examples();

}  // namespace quire::test
