#include "server/api/reference/pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "server/api/common/json.h"

namespace quire::reference {

namespace {

constexpr std::string_view kEndpoints = "## Endpoints";

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char c : text) {
    if (c == from) {
      out += to;
    } else {
      out += c;
    }
  }
  return out;
}

// Writes whole numbers without a fraction.
std::string plain_number(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? std::to_string(static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

std::string range_words(const FieldType& type) {
  if (type.low > type.high) return "";
  if (type.high >= fields::kMostInt32) return fmt::format(", at least {}", plain_number(type.low));
  return fmt::format(", {} to {}", plain_number(type.low), plain_number(type.high));
}

std::string field_rows(const FieldTable& table) {
  std::string text = "| field | | type | example | note |\n| --- | --- | --- | --- | --- |\n";
  for (const Field& row : table.rows) {
    text += fmt::format("| {} | {} | {} | `{}` | {} |\n", row.name, support_word(row.support), type_words(row.type),
                        row.example, row.note);
  }
  return text;
}

std::string endpoint_rows() {
  std::string text = "| method and path | what |\n| --- | --- |\n";
  for (const OperationRow& row : operations()) {
    const std::string query = row.query.empty() ? "" : fmt::format("; query parameters: {}", row.query);
    text += fmt::format("| {} {} | {}{} |\n", row.method, row.paths, row.text, query);
  }
  return text;
}

bool is_table_line(std::string_view line) {
  return line.starts_with("|");
}

}  // namespace

std::string_view support_word(Support support) {
  switch (support) {
    case Support::kSupported: return "supported";
    case Support::kAccepted: return "accepted";
    case Support::kConditional: return "conditional";
    case Support::kRefused: return "refused";
  }
  return "";
}

std::string type_words(const FieldType& type) {
  switch (type.kind) {
    case Kind::kTypes: return replaced(type.listed, '|', " or ");
    case Kind::kWords: return replaced(type.listed, '|', ", ");
    case Kind::kOnly: {
      std::string values;
      for (const Json& value : Json::parse(type.listed))
        values += fmt::format("{}`{}`", values.empty() ? "only " : ", ", dump_json(value));
      return values;
    }
    case Kind::kNumber: return "number" + range_words(type);
    case Kind::kInteger: return "integer" + range_words(type);
    case Kind::kTexts: return fmt::format("up to {} strings", type.most);
    case Kind::kTextOrTexts: return fmt::format("string, or up to {} strings", type.most);
    case Kind::kTokenIds: return "token ids";
  }
  return "";
}

std::string heading(const FieldTable& table) {
  const std::string inside = table.inside.empty() ? "" : fmt::format("{} of ", table.inside);
  return fmt::format("## {}: {}POST {}", table.title, inside, table.paths);
}

std::string with_tables(std::string_view page) {
  std::map<std::string, std::string, std::less<>> tables{{std::string(kEndpoints), endpoint_rows()}};
  for (const FieldTable* table : fields::field_tables())
    tables.emplace(heading(*table), field_rows(*table));
  std::string out;
  const std::string* awaited = nullptr;  // table of the current section; null once written
  bool replaces = false;                 // skips the old table
  while (!page.empty()) {
    const std::size_t end = std::min(page.find('\n'), page.size() - 1) + 1;
    const std::string_view line = page.substr(0, end);
    page.remove_prefix(end);
    if (line.starts_with("## ")) {
      const auto found = tables.find(line.substr(0, line.find('\n')));
      awaited = found == tables.end() ? nullptr : &found->second;
    }
    replaces = is_table_line(line) && (replaces || awaited != nullptr);
    if (!replaces) {
      out += line;
    } else if (awaited != nullptr) {
      out += *std::exchange(awaited, nullptr);
    }
  }
  return out;
}

}  // namespace quire::reference
