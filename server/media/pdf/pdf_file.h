// PDF files: the text of their pages and pictures of them, made by pdftotext and pdftoppm (poppler-utils) in child
// processes. Any thread that may wait, except check_pdf(), which does not.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace quire {

struct PdfOptions {
  bool enabled = false;
  std::string programs;                              // folder of the two programs; empty: those of PATH
  std::int64_t max_pages = 100;                      // bound for each file
  std::int64_t max_bytes = std::int64_t{128} << 20;  // text and pictures made of one file
  std::chrono::milliseconds max_time{30'000};        // both programs, for one file
  std::int64_t memory = std::int64_t{1} << 30;       // address space of each program
};

struct PdfContent {
  std::string text;                                       // UTF-8
  std::vector<std::shared_ptr<const std::string>> pages;  // PNG files; empty if they were not asked for

  std::int64_t num_bytes() const;
};

inline constexpr const char* kPdfNotRead = "unsupported_content";
inline constexpr const char* kBrokenPdf = "invalid_pdf";
inline constexpr const char* kTooLargePdf = "pdf_too_large";
inline constexpr const char* kSlowPdf = "pdf_timeout";

bool is_pdf(std::string_view bytes);

// 400 if PDF files are not read here: names the key or the missing program.
Result<void> check_pdf(const PdfOptions& options, bool with_pages);

// `is_unwanted` ends it early.
Result<PdfContent> read_pdf(const std::string& file, const PdfOptions& options, bool with_pages,
                            const std::function<bool()>& is_unwanted);

}  // namespace quire
