#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "server/media/decode/formats.h"

namespace quire::decoding {

namespace {

constexpr std::size_t kFirstChunk = 8;         // after the signature
constexpr std::uint64_t kMostPngRatio = 1032;  // deflate's largest ratio of output to input
constexpr png_alloc_size_t kMostChunk = png_alloc_size_t{8} << 20;

// State shared by libpng's callbacks and both sides of the jump. No object with a destructor is made between them.
struct PngState {
  PngState() = default;
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view bytes;
  std::size_t at = 0;
  const PictureLimits* limits = nullptr;
  bool is_late = false;
  char message[128] = "";
  std::vector<std::uint8_t> rows;  // all rows of an interlaced picture, else one row
  Picture picture;
  std::size_t row_bytes = 0;
  bool has_alpha = false;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& state = *static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state.message, message, sizeof state.message - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto& state = *static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state.bytes.size() - state.at) png_error(png, "the file ends too early");
  std::memcpy(out, state.bytes.data() + state.at, count);
  state.at += count;
}

void check_time(PngState& state) {
  if (!is_late(*state.limits)) return;
  state.is_late = true;
  png_error(state.png, "late");
}

// Everything as 8 bits of red, green, blue and, where some pixel may be transparent, alpha.
void set_transforms(PngState& state) {
  png_structp png = state.png;
  png_set_strip_16(png);
  png_set_expand(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, state.info);
  state.has_alpha = (png_get_color_type(png, state.info) & PNG_COLOR_MASK_ALPHA) != 0;
  state.row_bytes = png_get_rowbytes(png, state.info);
}

void take_row(PngState& state, const std::uint8_t* row) {
  const auto width = static_cast<std::size_t>(state.picture.width);
  std::vector<std::uint8_t>& rgb = state.picture.rgb;
  if (!state.has_alpha) {
    rgb.insert(rgb.end(), row, row + 3 * width);
    return;
  }
  for (std::size_t x = 0; x < width; ++x, row += 4) {
    for (int channel = 0; channel < 3; ++channel)
      rgb.push_back(state.limits->as_stored ? row[channel] : over_white(row[channel], row[3]));
  }
}

void read_interlaced(PngState& state, int num_passes) {
  const auto height = static_cast<std::size_t>(state.picture.height);
  state.rows.resize(height * state.row_bytes);
  for (int pass = 0; pass < num_passes; ++pass) {
    for (std::size_t y = 0; y < height; ++y) {
      png_read_row(state.png, state.rows.data() + y * state.row_bytes, nullptr);
      check_time(state);
    }
  }
  for (std::size_t y = 0; y < height; ++y)
    take_row(state, state.rows.data() + y * state.row_bytes);
}

void read_picture(PngState& state) {
  png_structp png = state.png;
  png_read_info(png, state.info);
  state.picture.width = static_cast<std::int32_t>(png_get_image_width(png, state.info));
  state.picture.height = static_cast<std::int32_t>(png_get_image_height(png, state.info));
  const bool is_interlaced = png_get_interlace_type(png, state.info) != PNG_INTERLACE_NONE;
  const std::uint64_t packed = png_get_rowbytes(png, state.info) * static_cast<std::uint64_t>(state.picture.height);
  if (packed > kMostPngRatio * state.bytes.size()) png_error(png, "the file is too short for its size");
  set_transforms(state);
  // Reserved memory becomes resident only as rows are written.
  state.picture.rgb.reserve(3 * static_cast<std::size_t>(state.picture.width) *
                            static_cast<std::size_t>(state.picture.height));
  if (is_interlaced) return read_interlaced(state, 7);
  state.rows.resize(state.row_bytes);
  for (std::int32_t y = 0; y < state.picture.height; ++y) {
    png_read_row(png, state.rows.data(), nullptr);
    take_row(state, state.rows.data());
    check_time(state);
  }
}

// Returns whether the whole file was read. Only trivial values live in this frame, because of longjmp().
bool run(PngState& state) {
  if (setjmp(png_jmpbuf(state.png)) != 0) return false;
  png_set_read_fn(state.png, &state, &read_bytes);
  png_set_user_limits(state.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller's limit counts pixels
  png_set_chunk_malloc_max(state.png, kMostChunk);
  png_set_chunk_cache_max(state.png, 128);
  png_set_crc_action(state.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  read_picture(state);
  return true;
}

}  // namespace

Result<RawSize> png_size(std::string_view bytes) {
  if (bytes.size() < kFirstChunk + 16 || bytes.substr(kFirstChunk + 4, 4) != "IHDR")
    return broken("the PNG file ends in its header");
  return RawSize{big32(bytes, kFirstChunk + 8), big32(bytes, kFirstChunk + 12)};
}

std::string_view png_exif(std::string_view bytes) {
  for (std::size_t at = kFirstChunk; at + 12 <= bytes.size();) {
    const std::size_t length = big32(bytes, at);
    if (length > bytes.size() - at - 12) break;
    if (bytes.substr(at + 4, 4) == "eXIf") return bytes.substr(at + 8, length);
    at += length + 12;
  }
  return {};
}

Result<Picture> decode_png(std::string_view bytes, const PictureLimits& limits) {
  PngState state;
  state.bytes = bytes;
  state.limits = &limits;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, &on_error, &on_warning);
  if (state.png != nullptr) state.info = png_create_info_struct(state.png);
  const bool done = state.info != nullptr && run(state);
  if (state.is_late) return too_slow();
  if (!done) return broken(std::string("the PNG file is damaged: ") + state.message);
  return std::move(state.picture);
}

}  // namespace quire::decoding
