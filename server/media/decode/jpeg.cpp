#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "server/media/decode/formats.h"

namespace quire::decoding {

namespace {

constexpr int kSegmentStart = 0xFF;
constexpr long kMostScratch = 1L << 30;  // libjpeg's own memory: coefficients of progressive files
constexpr int kMostScans = 500;
constexpr JOCTET kEndOfImage[2] = {0xFF, JPEG_EOI};

struct JpegState;

// Members of libjpeg's structs come first: its callbacks find the state by their address.
struct JpegErrors {
  jpeg_error_mgr base;
  JpegState* state;
};

struct JpegSource {
  jpeg_source_mgr base;
  JpegState* state;
};

struct JpegProgress {
  jpeg_progress_mgr base;
  JpegState* state;
};

// State shared by libjpeg's callbacks and both sides of the jump. No object with a destructor is made between them.
struct JpegState {
  JpegState() = default;
  JpegState(const JpegState&) = delete;
  JpegState& operator=(const JpegState&) = delete;
  ~JpegState() { jpeg_destroy_decompress(&jpeg); }

  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  JpegSource source{};
  JpegProgress progress{};
  std::jmp_buf jump{};
  const PictureLimits* limits = nullptr;
  bool is_late = false;
  bool at_end = false;
  char message[JMSG_LENGTH_MAX] = "";
  std::vector<std::uint8_t> row;
  Picture picture;
};

JpegState& state_of(j_common_ptr jpeg) {
  return *reinterpret_cast<JpegErrors*>(jpeg->err)->state;
}

[[noreturn]] void on_error(j_common_ptr jpeg) {
  JpegState& state = state_of(jpeg);
  jpeg->err->format_message(jpeg, state.message);
  std::longjmp(state.jump, 1);
}

// Damage inside is tolerated, as Pillow does; a file that ends too early is not.
void on_message(j_common_ptr jpeg, int level) {
  const JpegState& state = state_of(jpeg);
  if (level < 0 && state.at_end && jpeg->err->msg_code == JWRN_HIT_MARKER) on_error(jpeg);
}

void check_time(JpegState& state) {
  const bool has_many_scans = state.jpeg.input_scan_number > kMostScans;
  if (!is_late(*state.limits) && !has_many_scans) return;
  state.is_late = true;
  std::longjmp(state.jump, 1);
}

void on_progress(j_common_ptr jpeg) {
  check_time(state_of(jpeg));
}

void init_source(j_decompress_ptr) {}

boolean fill_source(j_decompress_ptr jpeg) {
  state_of(reinterpret_cast<j_common_ptr>(jpeg)).at_end = true;
  jpeg->src->next_input_byte = kEndOfImage;
  jpeg->src->bytes_in_buffer = 2;
  return TRUE;
}

void skip_source(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  auto left = static_cast<std::size_t>(count);
  if (left > jpeg->src->bytes_in_buffer) {
    fill_source(jpeg);
    return;
  }
  jpeg->src->next_input_byte += left;
  jpeg->src->bytes_in_buffer -= left;
}

void set_up(JpegState& state, std::string_view bytes) {
  state.jpeg.err = jpeg_std_error(&state.errors.base);
  state.errors.base.error_exit = &on_error;
  state.errors.base.emit_message = &on_message;
  state.errors.state = &state;
  state.source.base.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  state.source.base.bytes_in_buffer = bytes.size();
  state.source.base.init_source = &init_source;
  state.source.base.fill_input_buffer = &fill_source;
  state.source.base.skip_input_data = &skip_source;
  state.source.base.resync_to_restart = &jpeg_resync_to_restart;
  state.source.base.term_source = &init_source;
  state.progress.base.progress_monitor = &on_progress;
}

// Converts CMYK as Pillow does: expects Adobe's inverted inks, and rounds alike.
void take_inks(const std::uint8_t* row, std::size_t width, std::vector<std::uint8_t>& rgb) {
  for (std::size_t x = 0; x < width; ++x, row += 4) {
    const std::uint32_t paper = row[3];
    for (int ink = 0; ink < 3; ++ink) {
      const std::uint32_t sum = (255U - row[ink]) * paper + 128U;
      const std::uint32_t covered = (sum + (sum >> 8)) >> 8;
      rgb.push_back(static_cast<std::uint8_t>(paper - std::min(paper, covered)));
    }
  }
}

void take_row(JpegState& state) {
  const auto width = static_cast<std::size_t>(state.picture.width);
  std::vector<std::uint8_t>& rgb = state.picture.rgb;
  if (state.jpeg.out_color_space == JCS_CMYK) return take_inks(state.row.data(), width, rgb);
  if (state.jpeg.out_color_space == JCS_RGB) {
    rgb.insert(rgb.end(), state.row.begin(), state.row.end());
    return;
  }
  for (const std::uint8_t gray : state.row)
    rgb.insert(rgb.end(), 3, gray);
}

// Each block takes at least a bit of a Huffman code, so that a short file with a large size is found before memory is
// taken for it.
bool is_too_short(const JpegState& state, std::size_t num_bytes) {
  if (state.jpeg.arith_code != FALSE) return false;
  const std::uint64_t num_blocks =
      std::uint64_t{state.jpeg.image_width / 8} * std::uint64_t{state.jpeg.image_height / 8};
  return num_blocks > 8 * std::uint64_t{num_bytes};
}

void read_picture(JpegState& state, std::size_t num_bytes) {
  jpeg_decompress_struct& jpeg = state.jpeg;
  jpeg_create_decompress(&jpeg);
  jpeg.src = &state.source.base;
  jpeg.progress = &state.progress.base;
  state.progress.state = &state;
  jpeg.mem->max_memory_to_use = kMostScratch;
  jpeg_read_header(&jpeg, TRUE);
  const bool has_inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  const bool is_gray = jpeg.jpeg_color_space == JCS_GRAYSCALE;
  jpeg.out_color_space = has_inks ? JCS_CMYK : is_gray ? JCS_GRAYSCALE : JCS_RGB;
  if (is_too_short(state, num_bytes)) ERREXIT(&jpeg, JERR_INPUT_EOF);
  jpeg_start_decompress(&jpeg);
  // All scans of such a file were read: at_end means that it ended too early.
  if (state.at_end && jpeg_has_multiple_scans(&jpeg) != FALSE) ERREXIT(&jpeg, JERR_INPUT_EOF);
  state.picture.width = static_cast<std::int32_t>(jpeg.output_width);
  state.picture.height = static_cast<std::int32_t>(jpeg.output_height);
  state.picture.rgb.reserve(3 * std::size_t{jpeg.output_width} * std::size_t{jpeg.output_height});
  state.row.resize(std::size_t{jpeg.output_width} * static_cast<std::size_t>(jpeg.output_components));
  JSAMPROW row = state.row.data();
  while (jpeg.output_scanline < jpeg.output_height) {
    jpeg_read_scanlines(&jpeg, &row, 1);
    take_row(state);
    check_time(state);
  }
}

// Returns whether the whole file was read. Only trivial values live in this frame, because of longjmp().
bool run(JpegState& state, std::size_t num_bytes) {
  if (setjmp(state.jump) != 0) return false;
  read_picture(state, num_bytes);
  return true;
}

// Calls `take(marker, segment)` for each segment before the entropy-coded data, until it returns true.
template <typename Take>
void for_each_segment(std::string_view bytes, const Take& take) {
  std::size_t at = 2;
  while (at + 4 <= bytes.size()) {
    if (static_cast<unsigned char>(bytes[at]) != kSegmentStart) {
      ++at;
      continue;
    }
    const auto marker = static_cast<unsigned char>(bytes[at + 1]);
    const bool is_bare = marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    if (marker == 0xFF || is_bare) {
      at += marker == 0xFF ? 1 : 2;
      continue;
    }
    const std::size_t length = big16(bytes, at + 2);
    if (marker == 0xD9 || length < 2 || at + 2 + length > bytes.size()) return;
    if (take(marker, bytes.substr(at + 4, length - 2)) || marker == 0xDA) return;
    at += 2 + length;
  }
}

bool is_frame(int marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

}  // namespace

Result<RawSize> jpeg_size(std::string_view bytes) {
  RawSize size;
  for_each_segment(bytes, [&](int marker, std::string_view segment) {
    if (!is_frame(marker) || segment.size() < 6) return false;
    size = {big16(segment, 3), big16(segment, 1)};
    return true;
  });
  if (size.width == 0) return broken("the JPEG file ends before the size of its image");
  return size;
}

std::string_view jpeg_exif(std::string_view bytes) {
  constexpr std::string_view kExif{"Exif\0\0", 6};
  std::string_view found;
  for_each_segment(bytes, [&](int marker, std::string_view segment) {
    if (marker != 0xE1 || !segment.starts_with(kExif)) return false;
    found = segment.substr(kExif.size());
    return true;
  });
  return found;
}

Result<Picture> decode_jpeg(std::string_view bytes, const PictureLimits& limits) {
  JpegState state;
  state.limits = &limits;
  set_up(state, bytes);
  const bool done = run(state, bytes.size());
  if (state.is_late) return too_slow();
  if (!done) return broken(std::string("the JPEG file is damaged or ends too early: ") + state.message);
  return std::move(state.picture);
}

}  // namespace quire::decoding
