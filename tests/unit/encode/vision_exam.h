// VisionExam: tiny towers with what another engine made of pictures (material/vision). One thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/model/encode/encoder.h"

namespace quire::test {

// The highest level of this machine that multiplies F32 weights and attends in F32.
std::unique_ptr<Backend> exact_backend(int threads);

// Rows of a picture, computed in slices of `work`.
std::vector<float> encode(const Encoder& encoder, const Picture& picture, Backend& backend,
                          std::int64_t work = std::int64_t{1} << 40);

struct VisionExamResult {
  int num_pictures = 0;
  double worst_row = 0.0;  // largest difference over the largest value of a picture's stored rows
  std::string worst_where;
};

// Compares every prompt, alternatives included. Failures are reported through Catch's CHECK.
VisionExamResult take_vision_exam(const std::filesystem::path& family);

// Encodes the family's pictures in the form that it was trained with, whose rows no reference holds: their number is
// the layout's, and each is a number. Failures are reported through CHECK.
void encode_as_trained(const std::filesystem::path& family);

}  // namespace quire::test
