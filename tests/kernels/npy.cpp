#include "tests/kernels/npy.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <sstream>
#include <string>

#include "kernels/formats/half.h"
#include "tests/support/material.h"

namespace quire::test {
namespace {

template <class T>
T load(const std::string& text, std::size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

double element(const std::string& text, std::size_t at, std::size_t size) {
  if (size == 8) return static_cast<double>(load<std::int64_t>(text, at));
  if (size == 4) return static_cast<double>(load<float>(text, at));
  return static_cast<double>(bf16_to_float(load<std::uint16_t>(text, at)));
}

}  // namespace

Matrix Array::matrix() const {
  Matrix out(rows(), columns());
  for (std::int64_t row = 0; row < rows(); ++row) {
    for (std::int64_t col = 0; col < columns(); ++col) {
      out.at(row, col) = static_cast<float>(values[static_cast<std::size_t>(row * columns() + col)]);
    }
  }
  return out;
}

Array read_npy(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  INFO(path);
  REQUIRE(text.starts_with("\x93NUMPY\x01"));
  const std::size_t begin = 10 + load<std::uint16_t>(text, 8);
  const std::string header = text.substr(10, begin - 10);
  const std::size_t size = header.find("'<i8'") != std::string::npos   ? 8
                           : header.find("'<f4'") != std::string::npos ? 4
                           : header.find("'<u2'") != std::string::npos ? 2
                                                                       : 0;
  REQUIRE(size != 0);
  Array out;
  std::istringstream shape(header.substr(header.find('(') + 1));
  for (std::int64_t extent = 0; shape >> extent; shape.ignore(1))
    out.shape.push_back(extent);
  for (std::size_t at = begin; at + size <= text.size(); at += size)
    out.values.push_back(element(text, at, size));
  REQUIRE(!out.values.empty());
  return out;
}

}  // namespace quire::test
