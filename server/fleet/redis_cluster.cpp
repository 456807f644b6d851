#include "server/fleet/redis_cluster.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace quire {

namespace {

constexpr std::size_t kMostNodes = 4096;

// CRC16 as XMODEM has it: polynomial 0x1021, from 0.
std::uint16_t crc16(std::string_view text) {
  std::uint32_t crc = 0;
  for (const char letter : text) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(letter)) << 8;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc & 0x8000U) != 0 ? (crc << 1) ^ 0x1021U : crc << 1;
  }
  return static_cast<std::uint16_t>(crc);
}

std::optional<std::uint16_t> parse_slot(std::string_view text) {
  std::uint16_t slot = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
  const bool is_right = error == std::errc() && end == text.data() + text.size() && slot < kNumRedisSlots;
  return is_right ? std::optional(slot) : std::nullopt;
}

// HOST:PORT, also of IPv6 without brackets, as Redis writes it; the host may be absent.
std::optional<RedisAddress> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return std::nullopt;
  return RedisAddress{std::string(text.substr(0, colon)), std::string(digits)};
}

// HOST:PORT@BUS,NAME,... of a line of CLUSTER NODES.
std::optional<RedisAddress> parse_place(std::string_view text, const RedisAddress& asked, bool by_name) {
  const std::size_t comma = text.find(',');
  auto address = parse_address(text.substr(0, text.find_first_of("@,")));
  if (!address) return std::nullopt;
  if (by_name && comma != std::string_view::npos) {
    const std::string_view name = text.substr(comma + 1, text.find(',', comma + 1) - comma - 1);
    if (!name.empty() && name.find('=') == std::string_view::npos) address->host = name;
  }
  if (address->host.empty()) address->host = asked.host;
  return address;
}

}  // namespace

std::uint16_t redis_slot(std::string_view key) {
  const std::size_t begin = key.find('{');
  const std::size_t end = begin == std::string_view::npos ? begin : key.find('}', begin);
  if (end != std::string_view::npos && end > begin + 1) key = key.substr(begin + 1, end - begin - 1);
  return static_cast<std::uint16_t>(crc16(key) % kNumRedisSlots);
}

std::optional<RedisRedirection> parse_redirection(std::string_view error) {
  std::istringstream words{std::string(error)};
  std::string kind;
  std::string slot;
  std::string place;
  words >> kind >> slot >> place;
  if (kind != "MOVED" && kind != "ASK") return std::nullopt;
  const auto number = parse_slot(slot);
  const auto address = parse_address(place);
  if (!number || !address) return std::nullopt;
  return RedisRedirection{kind == "MOVED", *number, *address};
}

// Each line: id, place, flags, master, three times and counts, state of the link, and the slots, ranges of them, or
// such as move: "[SLOT->-NODE]".
std::optional<RedisSlotMap> RedisSlotMap::parse(std::string_view nodes, const RedisAddress& asked, bool by_name) {
  RedisSlotMap map;
  bool has_slots = false;
  std::istringstream lines{std::string(nodes)};
  for (std::string line; std::getline(lines, line) && map.nodes_.size() < kMostNodes;) {
    std::istringstream words(line);
    std::string id;
    std::string place;
    std::string flags;
    std::string unused;
    words >> id >> place >> flags;
    for (int i = 0; i < 5; ++i)
      words >> unused;
    const auto address = parse_place(place, asked, by_name);
    if (!words || !address || flags.find("noaddr") != std::string::npos) continue;
    const std::int16_t owner = map.place_of(*address);
    for (std::string range; words >> range;) {
      const std::size_t dash = range.find('-');
      const auto first = parse_slot(range.substr(0, dash));
      const auto last = dash == std::string::npos ? first : parse_slot(range.substr(dash + 1));
      if (!first || !last || *first > *last) continue;
      std::fill(map.owners_.begin() + *first, map.owners_.begin() + *last + 1, owner);
      has_slots = true;
    }
  }
  return has_slots ? std::optional(std::move(map)) : std::nullopt;
}

const RedisAddress* RedisSlotMap::find(std::uint16_t slot) const {
  const std::int16_t place = owners_[slot];
  return place < 0 ? nullptr : &nodes_[static_cast<std::size_t>(place)];
}

void RedisSlotMap::move(std::uint16_t slot, const RedisAddress& address) {
  if (nodes_.size() < kMostNodes) owners_[slot] = place_of(address);
}

std::int16_t RedisSlotMap::place_of(const RedisAddress& address) {
  const auto found = std::ranges::find(nodes_, address);
  if (found != nodes_.end()) return static_cast<std::int16_t>(found - nodes_.begin());
  nodes_.push_back(address);
  return static_cast<std::int16_t>(nodes_.size() - 1);
}

}  // namespace quire
