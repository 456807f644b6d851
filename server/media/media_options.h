// The settings of pictures in requests. Plain; immutable once given to a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/media/pdf/pdf_file.h"

namespace quire {

struct MediaOptions {
  std::int32_t threads = 2;
  std::int64_t max_file_bytes = std::int64_t{20} << 20;  // size of a picture's file
  std::int64_t max_pixels = 64'000'000;                  // bound for each picture
  std::int64_t max_per_request = 100;                    // pieces
  std::chrono::milliseconds max_decode_time{10'000};     // bound for each picture
  std::int64_t max_waiting = 256;                        // pieces that wait for media threads
  std::int64_t max_waiting_per_key = 128;                // share of an API key, or address
  std::int64_t memory = std::int64_t{512} << 20;         // prepared pictures: of requests, and remembered
  bool isolates_keys = false;                            // keys share no media
  std::vector<std::string> fetch;                        // hosts that URLs may name; none: no URL is fetched
  std::chrono::milliseconds fetch_time{10'000};          // from the look-up of the name to the last byte
  std::string root;                                      // folder that file:// URLs may read; empty: none
  PdfOptions pdf;
};

}  // namespace quire
