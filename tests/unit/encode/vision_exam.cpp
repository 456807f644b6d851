#include "tests/unit/encode/vision_exam.h"

#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/encode/picture_plan.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/read_tokenizer.h"
#include "kernels/registry.h"
#include "tests/unit/encode/png.h"

namespace quire::test {

namespace {

using Json = nlohmann::json;

constexpr double kMostDeviation = 5e-6;

std::string from_base64(const std::string& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = alphabet.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return out;
}

template <class Element = float>
std::vector<Element> decoded(const Json& text) {
  const std::string bytes = from_base64(text.get<std::string>());
  std::vector<Element> out(bytes.size() / sizeof(Element));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Element));
  return out;
}

// A text, or a run of rows with the tile that it comes from.
struct PromptChunk {
  std::vector<TokenId> ids;
  LayoutPart rows;
  std::size_t picture = 0;
  std::size_t tile = 0;
  std::int64_t first_row = 0;
};

struct Encoded {
  std::shared_ptr<const PreparedPicture> media;
  std::vector<float> rows;
};

class Exam {
 public:
  explicit Exam(const std::filesystem::path& family)
      : folder_(family),
        backend_(exact_backend(2)),
        text_(GgufFile::open(family / "text.gguf")),
        tokenizer_(read_gguf_tokenizer(*text_, "text.gguf")) {
    std::ifstream file(family / "reference.json");
    reference_ = Json::parse(file);
  }

  VisionExamResult take() {
    const auto plain = make([](TowerSpec&) {});
    for (const Json& prompt : reference_["prompts"])
      check_prompt(*plain, prompt);
    const auto stretched = make([](TowerSpec& spec) {
      spec.picture.whole = spec.picture.tiles = {ResizeFilter::kRoundedBicubic, ResizeFit::kStretch};
    });
    for (const Json& prompt : reference_["alt"]) {
      const bool is_class_order = prompt["name"].get<std::string>().ends_with("@hf_cls_order");
      check_prompt(is_class_order ? *make(put_class_first) : *stretched, prompt);
    }
    return result_;
  }

 private:
  std::unique_ptr<Encoder> make(const std::function<void(TowerSpec&)>& change) {
    MmprojFile file = MmprojFile::open(folder_ / "mmproj.gguf");
    TowerSpec spec = read_tower_spec(file, PictureForm::kLlamaCpp);
    change(spec);
    return std::make_unique<Encoder>(file, std::move(spec), EncoderOptions{.backend = backend_.get()});
  }

  static void put_class_first(TowerSpec& spec) {
    spec.class_token = ClassToken::kFirst;
    spec.skipped_rows = 0;
  }

  Picture picture(const std::string& relative) const {
    std::filesystem::path path = folder_ / relative;
    if (path.extension() != ".png") path.replace_extension(".stb.png");
    return read_png(path);
  }

  void add_text(const std::string& text, bool is_first, std::vector<PromptChunk>& chunks) const {
    const std::vector<TokenId> ids = tokenizer_->encode(text, is_first, true);
    if (ids.empty()) return;
    if (chunks.empty() || chunks.back().ids.empty()) chunks.emplace_back();
    chunks.back().ids.insert(chunks.back().ids.end(), ids.begin(), ids.end());
  }

  void check_prompt(const Encoder& encoder, const Json& prompt) {
    INFO("prompt " << prompt["name"]);
    std::vector<Encoded> pictures;
    std::vector<PromptChunk> chunks;
    const auto text = prompt["prompt"].get<std::string>();
    const std::string marker = "<__media__>";
    std::size_t at = 0;
    for (const Json& file : prompt["images"]) {
      const std::size_t found = text.find(marker, at);
      REQUIRE(found != std::string::npos);
      add_text(text.substr(at, found - at), at == 0, chunks);
      at = found + marker.size();
      add_picture(encoder, picture(file.get<std::string>()), pictures, chunks);
    }
    add_text(text.substr(at), at == 0, chunks);
    REQUIRE(chunks.size() == prompt["chunks"].size());
    std::int64_t num_tokens = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const Json& expected = prompt["chunks"][i];
      num_tokens += chunks[i].ids.empty() ? chunks[i].rows.num_rows : std::ssize(chunks[i].ids);
      if (expected["type"] == "text")
        check_ids(chunks[i].ids, expected["ids"]);
      else
        check_rows(encoder, pictures.at(chunks[i].picture), chunks[i], expected, prompt["name"].get<std::string>());
    }
    CHECK(num_tokens == prompt["n_tokens"].get<std::int64_t>());
  }

  static void check_ids(const std::vector<TokenId>& ids, const Json& expected) {
    std::vector<std::int32_t> values;
    for (const TokenId id : ids)
      values.push_back(id.value);
    CHECK(values == expected.get<std::vector<std::int32_t>>());
  }

  void add_picture(const Encoder& encoder, const Picture& picture, std::vector<Encoded>& pictures,
                   std::vector<PromptChunk>& chunks) {
    Encoded encoded{.media = encoder.prepare(picture, {}), .rows = encode(encoder, picture, *backend_)};
    const MediaLayout layout = encoder.layout(picture.width, picture.height, {});
    CHECK(layout.num_rows == encoded.media->plan().layout.num_rows);
    std::size_t tile = 0;
    std::int64_t row = 0;
    for (const LayoutPart& part : layout.parts) {
      if (part.num_rows == 0) {
        add_text(part.text, false, chunks);
        continue;
      }
      PromptChunk& chunk = chunks.emplace_back();
      chunk.rows = part;
      chunk.picture = pictures.size();
      chunk.tile = tile++;
      chunk.first_row = row;
      row += part.num_rows;
    }
    CHECK(row == layout.num_rows);
    pictures.push_back(std::move(encoded));
    ++result_.num_pictures;
  }

  void check_rows(const Encoder& encoder, const Encoded& encoded, const PromptChunk& chunk, const Json& expected,
                  const std::string& name) {
    CHECK(chunk.rows.num_rows == expected["n_tokens"].get<std::int64_t>());
    CHECK(chunk.rows.num_positions == expected["n_pos"].get<std::int64_t>());
    CHECK(chunk.rows.is_bidirectional == !expected["causal"].get<bool>());
    if (expected.contains("grid_tokens") && encoder.spec().has_grid_positions) {
      CHECK(chunk.rows.grid_width == expected["grid_tokens"][0].get<std::int32_t>());
      CHECK(chunk.rows.grid_height == expected["grid_tokens"][1].get<std::int32_t>());
    }
    check_pixels(encoder.spec(), encoded.media->tiles()[chunk.tile], expected["pre"][0]);
    REQUIRE(expected["embd_dim"].get<std::int64_t>() == encoder.row_width());
    const auto width = static_cast<std::size_t>(encoder.row_width());
    const std::vector<float> rows = decoded(expected["embd_rows_f32_b64"]);
    const std::vector<float> norms = decoded(expected["embd_norms_f32_b64"]);
    const float* const first = encoded.rows.data() + static_cast<std::size_t>(chunk.first_row) * width;
    double squares = 0.0;
    double differences = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = expected["embd_rows"][i / width].get<std::size_t>();
      const double value = rows[i];
      squares += value * value;
      differences += std::pow(static_cast<double>(first[row * width + i % width]) - value, 2.0);
    }
    const double worst = std::sqrt(differences / squares);
    double worst_norm = 0.0;
    for (std::size_t row = 0; row < norms.size(); ++row) {
      double sum = 0.0;
      for (std::size_t c = 0; c < width; ++c)
        sum += std::pow(static_cast<double>(first[row * width + c]), 2.0);
      worst_norm = std::max(worst_norm, std::abs(std::sqrt(sum) / static_cast<double>(norms[row]) - 1.0));
    }
    CHECK(worst_norm < kMostDeviation);
    CHECK(worst < kMostDeviation);
    if (worst > result_.worst_row) {
      result_.worst_row = worst;
      result_.worst_where = name;
    }
  }

  static void check_pixels(const TowerSpec& spec, const Picture& tile, const Json& expected) {
    CHECK(tile.width == expected["w"].get<std::int32_t>());
    CHECK(tile.height == expected["h"].get<std::int32_t>());
    CHECK(crc32(0, tile.rgb.data(), static_cast<uInt>(tile.rgb.size())) == expected["crc32_u8"].get<std::uint32_t>());
    const std::vector<float> samples = decoded(expected["sample_f32_b64"]);
    double worst = 0.0;
    for (std::size_t k = 0; k < samples.size(); ++k) {
      const std::size_t index = k * std::size_t{2654435761} % tile.rgb.size();
      const double value =
          (static_cast<double>(tile.rgb[index]) / 255.0 - static_cast<double>(spec.picture.mean[index % 3])) /
          static_cast<double>(spec.picture.deviation[index % 3]);
      worst = std::max(worst, std::abs(value - static_cast<double>(samples[k])));
    }
    CHECK(worst < 1e-5);
  }

  std::filesystem::path folder_;
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const GgufFile> text_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Json reference_;
  VisionExamResult result_;
};

}  // namespace

std::unique_ptr<Backend> exact_backend(int threads) {
  std::string level = "scalar";
  for (const IsaLevel& isa : cpu_isa_levels()) {
    if (isa.supported && (isa.name == "avx2" || isa.name == "avx512" || isa.name == "neon")) level = isa.name;
  }
  return create_backend({.device = "cpu", .cpu = {.isa = level, .threads = threads, .pin = false}});
}

std::vector<float> encode(const Encoder& encoder, const Picture& picture, Backend& backend, std::int64_t work) {
  const auto run = encoder.prepare(picture, {})->start();
  while (!run->is_done())
    run->advance(work, backend);
  const auto rows = run->rows();
  return {rows.begin(), rows.end()};
}

void encode_as_trained(const std::filesystem::path& family) {
  const auto backend = exact_backend(2);
  const auto encoder = Encoder::open(family / "mmproj.gguf", {.backend = backend.get(), .max_pixels = 1 << 18});
  for (const char* name : {"exact.png", "../images/wide.png", "../images/tall.png", "../images/big.png",
                           "../images/dot.png", "../images/thin.png"}) {
    INFO("trained form, " << name);
    const Picture picture = read_png(family / name);
    for (const auto detail : {PictureSettings::Detail::kAuto, PictureSettings::Detail::kLow}) {
      const MediaLayout layout = encoder->layout(picture.width, picture.height, {.detail = detail});
      const auto run = encoder->prepare(picture, {.detail = detail})->start();
      while (!run->is_done())
        run->advance(std::int64_t{1} << 40, *backend);
      CHECK(layout.num_rows > 0);
      CHECK(std::ssize(run->rows()) == layout.num_rows * encoder->row_width());
      CHECK(std::ranges::all_of(run->rows(), [](float value) { return std::isfinite(value); }));
      CHECK(std::ranges::any_of(run->rows(), [](float value) { return value != 0.0F; }));
    }
  }
}

VisionExamResult take_vision_exam(const std::filesystem::path& family) {
  return Exam(family).take();
}

}  // namespace quire::test
