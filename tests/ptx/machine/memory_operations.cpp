#include <cstring>

#include "tests/ptx/machine/machine.h"
#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

std::uint64_t address_of(Warp& warp, const Address& address, std::size_t lane) {
  return warp.lanes_of(address.base)[lane] + static_cast<std::uint64_t>(address.offset);
}

// Addresses of a request, each aligned to a lane's access size.
LaneAddresses request_of(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  LaneAddresses request{.lanes = lanes, .bytes = in.bytes * in.elements};
  for_lanes(lanes, [&](std::size_t lane) {
    request.of[lane] = address_of(warp, in.addresses[0], lane);
    if (request.of[lane] % static_cast<std::uint64_t>(request.bytes) != 0) warp.fail(in, lane, "is not aligned");
  });
  return request;
}

// A register that is wider than the element gets zeros, or its sign.
std::uint64_t element_of(const Instruction& in, const std::byte* from) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<std::size_t>(in.bytes));
  const int above = 64 - 8 * in.bytes;
  if (in.is_signed) bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << above) >> above);
  return bits & in.dest_mask;
}

void load(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const LaneAddresses request = request_of(warp, in, lanes);
  for_lanes(lanes, [&](std::size_t lane) {
    const std::byte* const from = warp.read_at(in, request.of[lane], request.bytes, lane);
    for (std::size_t e = 0; e < static_cast<std::size_t>(in.elements); ++e)
      warp.lanes_of(in.registers[e])[lane] = element_of(in, from + e * static_cast<std::size_t>(in.bytes));
  });
  if (lanes != 0) warp.block().count_access(in, in.space, request);
}

void store(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const LaneAddresses request = request_of(warp, in, lanes);
  for_lanes(lanes, [&](std::size_t lane) {
    std::byte* const to = warp.write_at(in, request.of[lane], request.bytes, lane);
    for (std::size_t e = 0; e < static_cast<std::size_t>(in.elements); ++e) {
      const std::uint64_t bits = warp.lanes_of(in.registers[e])[lane];
      std::memcpy(to + e * static_cast<std::size_t>(in.bytes), &bits, static_cast<std::size_t>(in.bytes));
    }
  });
  if (lanes != 0) warp.block().count_access(in, in.space, request);
}

void copy_async(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  LaneAddresses to{.lanes = lanes};
  LaneAddresses from{.lanes = lanes};
  for_lanes(lanes, [&](std::size_t lane) {
    to.bytes = from.bytes = static_cast<int>(warp.lanes_of(in.registers[0])[lane]);
    to.of[lane] = address_of(warp, in.addresses[0], lane);
    from.of[lane] = address_of(warp, in.addresses[1], lane);
    warp.copy_async(in, to.of[lane], from.of[lane], to.bytes, lane);
  });
  if (lanes == 0) return;
  warp.block().count_access(in, Space::kShared, to);
  warp.block().count_access(in, Space::kGlobal, from);
}

void commit_copies(Warp& warp, const Instruction& /*in*/, std::uint32_t lanes) {
  for_lanes(lanes, [&](std::size_t lane) { warp.commit_copies(lane); });
}

void wait_copies(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](std::size_t lane) {
    warp.wait_copies(in, static_cast<int>(warp.lanes_of(in.registers[0])[lane]), lane);
  });
}

void wait_all_copies(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](std::size_t lane) {
    warp.commit_copies(lane);
    warp.wait_copies(in, 0, lane);
  });
}

// Addresses in a space and addresses of all memory are the same here.
void convert_address(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](std::size_t i) { warp.lanes_of(in.registers[0])[i] = warp.lanes_of(in.registers[1])[i]; });
}

struct SpaceName {
  const char* name;
  Space space;
};
constexpr SpaceName kSpaces[] = {{"global", Space::kGlobal},
                                 {"global.nc", Space::kGlobal},
                                 {"shared", Space::kShared},
                                 {"local", Space::kLocal},
                                 {"param", Space::kParam}};

struct ElementName {
  const char* name;
  int bytes;
};
constexpr ElementName kElements[] = {{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},
                                     {"s16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},
                                     {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}};

}  // namespace

void add_memory_operations(Operations& out) {
  for (const SpaceName& space : kSpaces) {
    for (const ElementName& element : kElements) {
      for (const int elements : {1, 2, 4}) {
        const std::string vector = elements == 1 ? "" : "v" + std::to_string(elements) + ".";
        Operation operation{.run = &load,
                            .kind = Kind::kMemory,
                            .space = space.space,
                            .bytes = element.bytes,
                            .is_signed = element.name[0] == 's',
                            .elements = elements};
        const std::string rest = std::string(space.name) + "." + vector + element.name;
        out["ld." + rest] = operation;
        operation.run = &store;
        if (space.space != Space::kParam) out["st." + rest] = operation;
      }
    }
  }
  for (const char* cache : {"ca", "cg"})
    out[std::string("cp.async.") + cache + ".shared.global"] = {
        .run = &copy_async, .kind = Kind::kCopyAsync, .space = Space::kShared};
  out["cp.async.commit_group"] = {.run = &commit_copies, .kind = Kind::kCopyAsync, .space = Space::kShared};
  out["cp.async.wait_group"] = {.run = &wait_copies, .kind = Kind::kCopyAsync, .space = Space::kShared};
  out["cp.async.wait_all"] = {.run = &wait_all_copies, .kind = Kind::kCopyAsync, .space = Space::kShared};
  out["cvta.to.global.u64"] = {.run = &convert_address, .kind = Kind::kMove};
  out["cvta.global.u64"] = {.run = &convert_address, .kind = Kind::kMove};
}

}  // namespace quire::ptx
