#include "config/key_types.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/base/message_text.h"

namespace quire::config_types {
namespace {

using Kind = ConfigValue::Kind;

// A plain scalar: a quoted one is text, never a number.
bool is_plain(const ConfigValue& value) {
  return value.kind == Kind::kScalar && !value.quoted && !value.text.empty();
}

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr Unit kSizeUnits[] = {{"TiB", std::int64_t{1} << 40},
                               {"GiB", std::int64_t{1} << 30},
                               {"MiB", std::int64_t{1} << 20},
                               {"KiB", std::int64_t{1} << 10},
                               {"TB", 1'000'000'000'000},
                               {"GB", 1'000'000'000},
                               {"MB", 1'000'000},
                               {"kB", 1'000},
                               {"B", 1}};
constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1'000}, {"m", 60'000}, {"h", 3'600'000}};

// "1.5GiB": a number and a unit, rounded to whole smallest units.
std::optional<std::int64_t> read_with_unit(std::string_view text, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    std::string_view digits = text.substr(0, text.size() - unit.name.size());
    while (!digits.empty() && digits.back() == ' ')
      digits.remove_suffix(1);
    if (digits.empty() || digits.front() < '0' || digits.front() > '9') continue;
    const auto number = parse<double>(digits);
    if (!number) continue;
    const double scaled = *number * static_cast<double>(unit.factor);
    constexpr double kMost = 9e18;
    if (!(scaled <= kMost) || scaled != std::floor(scaled)) return std::nullopt;
    return static_cast<std::int64_t>(scaled);
  }
  return std::nullopt;
}

template <class T>
ConfigKey make(Description description, std::string accepts, Field<T> field,
               std::function<std::optional<T>(const ConfigValue&)> read, std::function<std::string(const T&)> show) {
  ConfigKey key{description.path, description.help, description.flags, std::move(accepts), false, {}, {}};
  key.set = [field, read = std::move(read), accepts = key.accepts](Config& config,
                                                                   const ConfigValue& value) -> std::string {
    auto found = read(value);
    if (!found) return "must be " + accepts;
    field(config) = std::move(*found);
    return {};
  };
  key.get = [field, show = std::move(show)](Config& config) { return show(field(config)); };
  return key;
}

std::optional<std::string> read_text(const ConfigValue& value) {
  return value.kind == Kind::kScalar ? std::optional(value.text) : std::nullopt;
}

ConfigKey duration_in(Description description, Field<double> field, double per_unit) {
  return make<double>(
      std::move(description), "a time such as 500ms, 30s or 5m", field,
      [per_unit](const ConfigValue& value) -> std::optional<double> {
        const auto read = read_duration(value);
        return read ? std::optional(static_cast<double>(read->count()) / per_unit) : std::nullopt;
      },
      [per_unit](const double& value) {
        return show_duration(std::chrono::milliseconds(std::llround(value * per_unit)));
      });
}

}  // namespace

std::optional<bool> read_boolean(const ConfigValue& value) {
  if (!is_plain(value) || (value.text != "true" && value.text != "false")) return std::nullopt;
  return value.text == "true";
}

std::optional<std::int64_t> read_integer(const ConfigValue& value) {
  return is_plain(value) ? parse<std::int64_t>(value.text) : std::nullopt;
}

std::optional<double> read_number(const ConfigValue& value) {
  const auto number = is_plain(value) ? parse<double>(value.text) : std::nullopt;
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<std::int64_t> read_size(const ConfigValue& value) {
  if (value.kind != Kind::kScalar) return std::nullopt;
  if (const auto bytes = read_integer(value)) return bytes;
  return read_with_unit(value.text, kSizeUnits);
}

std::optional<std::chrono::milliseconds> read_duration(const ConfigValue& value) {
  if (value.kind != Kind::kScalar) return std::nullopt;
  if (value.text == "0") return std::chrono::milliseconds(0);
  const auto count = read_with_unit(value.text, kTimeUnits);
  // A century: within the range of a clock's arithmetic.
  constexpr std::int64_t kMost = std::int64_t{36'525} * 24 * 3'600'000;
  return count && *count <= kMost ? std::optional(std::chrono::milliseconds(*count)) : std::nullopt;
}

ConfigValue mapping_of_flag(const std::string& text) {
  ConfigValue map;
  map.kind = Kind::kMap;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const std::size_t equals = std::min(item.find('='), item.size());
    ConfigMember& member = map.members.emplace_back();
    member.name = item.substr(0, equals);
    member.value.kind = Kind::kScalar;
    member.value.text = equals < item.size() ? item.substr(equals + 1) : "";
    at = end + 1;
  }
  return map;
}

std::string show_size(std::int64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    const bool binary = unit.name.size() == 3;
    if (binary && bytes != 0 && bytes % unit.factor == 0) return fmt::format("{}{}", bytes / unit.factor, unit.name);
  }
  return std::to_string(bytes);
}

std::string show_duration(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? fmt::format("{}s", count / 1000) : fmt::format("{}ms", count);
}

std::string show_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string describe(const Range& range) {
  const bool unbounded = range.max >= std::numeric_limits<std::int32_t>::max();
  std::string text =
      unbounded ? fmt::format("of at least {}", range.min) : fmt::format("from {} to {}", range.min, range.max);
  if (range.multiple_of > 1) text += fmt::format(" that is a multiple of {}", range.multiple_of);
  return text;
}

bool contains(const Range& range, std::int64_t value) {
  return value >= range.min && value <= range.max && value % range.multiple_of == 0;
}

std::string choice_complaint(const std::vector<std::string>& names, const ConfigValue& value) {
  std::string text = fmt::format("must be one of {}", fmt::join(names, ", "));
  if (value.kind == Kind::kScalar) {
    text += fmt::format("; did you mean '{}'?", nearest_name(value.text, {names.begin(), names.end()}));
  }
  return text;
}

ConfigKey text_choice(Description description, Field<std::string> field, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& name : names)
    pairs.emplace_back(name, name);
  return choice<std::string>(std::move(description), field, std::move(pairs));
}

ConfigKey known_text(Description description, Field<std::string> field, std::string accepts,
                     const std::vector<std::string_view>& names, bool (*known)(std::string_view)) {
  ConfigKey key = text(std::move(description), field);
  key.accepts = std::move(accepts);
  key.set = [field, known, names, wanted = key.accepts](Config& config, const ConfigValue& value) -> std::string {
    if (value.kind != Kind::kScalar) return "must be " + wanted;
    if (!known(value.text)) {
      if (names.empty()) return "must be " + wanted;
      return fmt::format("must be {}; did you mean '{}'?", wanted, nearest_name(value.text, names));
    }
    field(config) = value.text;
    return {};
  };
  return key;
}

std::string place_of(const ConfigValue& item) {
  return item.line > 0 ? fmt::format(" (line {})", item.line) : std::string();
}

ConfigKey boolean(Description description, Field<bool> field) {
  return make<bool>(std::move(description), "true or false", field, read_boolean,
                    [](const bool& value) { return std::string(value ? "true" : "false"); });
}

ConfigKey number(Description description, Field<double> field, double min, double max) {
  return make<double>(
      std::move(description), fmt::format("a number from {} to {}", min, max), field,
      [min, max](const ConfigValue& value) {
        const auto found = read_number(value);
        return found && *found >= min && *found <= max ? found : std::nullopt;
      },
      [](const double& value) { return fmt::format("{}", value); });
}

ConfigKey size(Description description, Field<std::int64_t> field, Range range) {
  std::string accepts = range.min == 1 ? "a size above 0 such as 512MiB or 4GiB" : "a size such as 512MiB or 4GiB";
  if (range.max != std::numeric_limits<std::int64_t>::max()) {
    accepts = fmt::format("a size from {} to {}", show_size(range.min), show_size(range.max));
  }
  return make<std::int64_t>(
      std::move(description), std::move(accepts), field,
      [range](const ConfigValue& value) {
        const auto bytes = read_size(value);
        return bytes && contains(range, *bytes) ? bytes : std::nullopt;
      },
      [](const std::int64_t& bytes) { return show_size(bytes); });
}

ConfigKey duration(Description description, Field<std::chrono::milliseconds> field) {
  return make<std::chrono::milliseconds>(std::move(description), "a time such as 500ms, 30s or 5m", field,
                                         read_duration,
                                         [](const std::chrono::milliseconds& value) { return show_duration(value); });
}

ConfigKey seconds(Description description, Field<double> field) {
  return duration_in(std::move(description), field, 1000.0);
}

ConfigKey milliseconds(Description description, Field<double> field) {
  return duration_in(std::move(description), field, 1.0);
}

ConfigKey milliseconds_or_auto(Description description, Field<double> field, double automatic) {
  return make<double>(
      std::move(description), "auto, or a time such as 500ms, 30s or 5m", field,
      [automatic](const ConfigValue& value) -> std::optional<double> {
        if (value.text == "auto") return automatic;
        const auto read = read_duration(value);
        return read ? std::optional(static_cast<double>(read->count())) : std::nullopt;
      },
      [automatic](const double& value) -> std::string {
        return value == automatic ? "auto" : show_duration(std::chrono::milliseconds(std::llround(value)));
      });
}

ConfigKey text(Description description, Field<std::string> field) {
  return make<std::string>(std::move(description), "text", field, read_text, show_text);
}

ConfigKey path(Description description, Field<std::filesystem::path> field) {
  return make<std::filesystem::path>(
      std::move(description), "a path", field,
      [](const ConfigValue& value) -> std::optional<std::filesystem::path> {
        const auto found = read_text(value);
        return found ? std::optional(std::filesystem::path(*found)) : std::nullopt;
      },
      [](const std::filesystem::path& value) { return show_text(value.string()); });
}

ConfigKey texts(Description description, Field<std::vector<std::string>> field) {
  ConfigKey key = make<std::vector<std::string>>(
      std::move(description), "a name, or a list of names", field,
      [](const ConfigValue& value) -> std::optional<std::vector<std::string>> {
        std::vector<std::string> found;
        if (value.kind == Kind::kScalar) found.push_back(value.text);
        for (const ConfigValue& item : value.items) {
          if (item.kind != Kind::kScalar) return std::nullopt;
          found.push_back(item.text);
        }
        const bool fits = value.kind == Kind::kScalar || value.kind == Kind::kList;
        for (const std::string& name : found) {
          if (name.empty()) return std::nullopt;
        }
        return fits ? std::optional(std::move(found)) : std::nullopt;
      },
      [](const std::vector<std::string>& values) {
        std::string out;
        for (const std::string& value : values)
          out += (out.empty() ? "" : ", ") + show_text(value);
        return "[" + out + "]";
      });
  key.is_list = true;
  return key;
}

ConfigKey weights(Description description, Field<std::map<std::string, double>> field) {
  ConfigKey key = make<std::map<std::string, double>>(
      std::move(description), "a mapping of names to numbers above 0 (as a flag: name=number)", field,
      [](const ConfigValue& value) -> std::optional<std::map<std::string, double>> {
        std::map<std::string, double> found;
        const auto add = [&](const std::string& name, const ConfigValue& weight) {
          const auto number = read_number(weight);
          return number && *number > 0 && found.emplace(name, *number).second;
        };
        for (const ConfigMember& member : value.members) {
          if (!add(member.name, member.value)) return std::nullopt;
        }
        // Flags come as a list of "name=number".
        for (const ConfigValue& item : value.items) {
          const std::size_t equals = item.text.rfind('=');
          ConfigValue weight = item;
          weight.text = equals == std::string::npos ? "" : item.text.substr(equals + 1);
          if (item.line != 0 || !add(item.text.substr(0, equals), weight)) return std::nullopt;
        }
        const bool fits = value.kind == Kind::kMap || value.kind == Kind::kList;
        return fits ? std::optional(std::move(found)) : std::nullopt;
      },
      [](const std::map<std::string, double>& values) {
        std::string out;
        for (const auto& [name, weight] : values)
          out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", show_text(name), weight);
        return "{" + out + "}";
      });
  key.is_list = true;
  return key;
}

}  // namespace quire::config_types
