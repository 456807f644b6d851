#include "server/media/pdf/pdf_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/text/unicode.h"
#include "server/media/pdf/child_program.h"

namespace quire {

namespace {

constexpr int kPageSide = 1024;  // pixels of a page's longer side
constexpr std::string_view kPngBegin("\x89PNG\r\n\x1A\n", 8);
constexpr std::size_t kPngFrame = 12;  // a chunk's length, type and sum

// Path of the program; empty: there is none.
std::string find_program(const PdfOptions& options, const char* name) {
  const char* const path = std::getenv("PATH");
  std::string_view folders = !options.programs.empty() ? std::string_view(options.programs)
                             : path != nullptr         ? path
                                                       : "";
  while (!folders.empty()) {
    const std::size_t colon = options.programs.empty() ? folders.find(':') : std::string_view::npos;
    const std::filesystem::path file = std::filesystem::path(folders.substr(0, colon)) / name;
    std::error_code failed;
    if (file.is_absolute() && std::filesystem::is_regular_file(file, failed) && ::access(file.c_str(), X_OK) == 0)
      return file;
    folders = colon == std::string_view::npos ? std::string_view() : folders.substr(colon + 1);
  }
  return {};
}

tl::unexpected<Error> not_read(std::string_view why) {
  return invalid(
      fmt::format("PDF files are not read by this server: {}; send the file's text, or images of its pages", why), "",
      kPdfNotRead);
}

tl::unexpected<Error> refusal_of(const ChildOutput& output, const char* name, const PdfOptions& options) {
  switch (output.end) {
    case ChildEnd::kTooSlow:
      return invalid(
          fmt::format("reading the PDF file takes longer than {} ms (media.pdf.max_time)", options.max_time.count()),
          "", kSlowPdf);
    case ChildEnd::kTooMuch:
      return invalid(
          fmt::format("the PDF file's text and pages take more than {} bytes (media.pdf.max_bytes)", options.max_bytes),
          "", kTooLargePdf);
    case ChildEnd::kUnwanted: return invalid("the client has left", "", kSlowPdf);
    case ChildEnd::kNotStarted:
      return failure(ErrorKind::kInternal, fmt::format("{} cannot be started (error {})", name, output.status),
                     "internal_error");
    default: break;
  }
  return invalid(
      fmt::format("the PDF file cannot be read: {} ended with status {}. It may be damaged, need a password, "
                  "or need more memory than media.pdf.memory",
                  name, output.status),
      "", kBrokenPdf);
}

// Size of the PNG file that the bytes begin with; nullopt: they begin with none.
std::optional<std::size_t> png_size(std::string_view bytes) {
  if (!bytes.starts_with(kPngBegin)) return std::nullopt;
  std::size_t at = kPngBegin.size();
  while (bytes.size() - at >= kPngFrame) {
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = (length << 8) | static_cast<unsigned char>(bytes[at + i]);
    const bool is_last = bytes.substr(at + 4, 4) == "IEND";
    if (bytes.size() - at - kPngFrame < length) return std::nullopt;
    at += kPngFrame + length;
    if (is_last) return at;
  }
  return std::nullopt;
}

Result<std::vector<std::shared_ptr<const std::string>>> cut_pages(std::string_view bytes, std::int64_t num_pages) {
  std::vector<std::shared_ptr<const std::string>> pages;
  while (!bytes.empty()) {
    const auto size = png_size(bytes);
    if (!size || std::cmp_greater_equal(pages.size(), num_pages))
      return failure(ErrorKind::kInternal, "pdftoppm wrote something else than the pages as PNG", "internal_error");
    pages.push_back(std::make_shared<const std::string>(bytes.substr(0, *size)));
    bytes.remove_prefix(*size);
  }
  return pages;
}

}  // namespace

std::int64_t PdfContent::num_bytes() const {
  std::size_t bytes = text.size();
  for (const auto& page : pages)
    bytes += page->size();
  return static_cast<std::int64_t>(bytes);
}

bool is_pdf(std::string_view bytes) {
  return bytes.starts_with("%PDF");
}

Result<void> check_pdf(const PdfOptions& options, bool with_pages) {
  if (!options.enabled) return not_read("media.pdf.enabled is false");
  for (const char* const name : {"pdftotext", "pdftoppm"}) {
    const bool is_needed = with_pages || std::string_view(name) == "pdftotext";
    if (is_needed && find_program(options, name).empty())
      return not_read(fmt::format("{} of poppler-utils is not installed", name));
  }
  return {};
}

Result<PdfContent> read_pdf(const std::string& file, const PdfOptions& options, bool with_pages,
                            const std::function<bool()>& is_unwanted) {
  const auto began = std::chrono::steady_clock::now();
  // Reads a page beyond the limit, to detect a file with too many.
  ChildProgram program{.path = find_program(options, "pdftotext"),
                       .arguments = {"-enc", "UTF-8", "-l", std::to_string(options.max_pages + 1), "-", "-"},
                       .memory = options.memory,
                       .max_time = options.max_time,
                       .max_output = options.max_bytes,
                       .is_unwanted = is_unwanted};
  ChildOutput output = run_child(program, file);
  if (output.end != ChildEnd::kDone) return refusal_of(output, "pdftotext", options);
  PdfContent content{.text = std::move(output.bytes), .pages = {}};
  const std::int64_t num_pages = std::ranges::count(content.text, '\f');
  if (num_pages > options.max_pages)
    return invalid(fmt::format("the PDF file has more than {} pages (media.pdf.max_pages)", options.max_pages), "",
                   kTooLargePdf);
  if (!unicode::is_valid(content.text)) return invalid("the PDF file's text is not UTF-8", "", kBrokenPdf);
  if (num_pages == 0) return invalid("the PDF file has no pages", "", kBrokenPdf);
  std::ranges::replace(content.text, '\f', '\n');
  content.text.erase(content.text.find_last_not_of(" \t\r\n") + 1);
  if (!with_pages) return content;
  const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  program.path = find_program(options, "pdftoppm");
  program.arguments = {"-png", "-l", std::to_string(num_pages), "-scale-to", std::to_string(kPageSide), "-"};
  program.max_time = options.max_time - taken;
  program.max_output = options.max_bytes - std::ssize(content.text);
  output = run_child(program, file);
  if (output.end != ChildEnd::kDone) return refusal_of(output, "pdftoppm", options);
  auto pages = cut_pages(output.bytes, num_pages);
  if (!pages) return tl::make_unexpected(pages.error());
  content.pages = *std::move(pages);
  return content;
}

}  // namespace quire
