
#include "tests/ptx/operations.h"

namespace quire::ptx {
namespace {

// A NaN gives way to a number, and minus zero is below zero.
float smaller(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float larger(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

bool unordered(float a, float b) {
  return std::isnan(a) || std::isnan(b);
}

void add_float_comparisons(Operations& out) {
  out["setp.eq.f32"] = {&binary<float, [](float a, float b) { return a == b; }>, Kind::kSelect};
  out["setp.ne.f32"] = {&binary<float, [](float a, float b) { return a < b || b < a; }>, Kind::kSelect};
  out["setp.lt.f32"] = {&binary<float, [](float a, float b) { return a < b; }>, Kind::kSelect};
  out["setp.le.f32"] = {&binary<float, [](float a, float b) { return a <= b; }>, Kind::kSelect};
  out["setp.gt.f32"] = {&binary<float, [](float a, float b) { return b < a; }>, Kind::kSelect};
  out["setp.ge.f32"] = {&binary<float, [](float a, float b) { return a >= b; }>, Kind::kSelect};
  out["setp.equ.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || a == b; }>, Kind::kSelect};
  out["setp.neu.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || a != b; }>, Kind::kSelect};
  out["setp.ltu.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || a < b; }>, Kind::kSelect};
  out["setp.leu.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || a <= b; }>, Kind::kSelect};
  out["setp.gtu.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || b < a; }>, Kind::kSelect};
  out["setp.geu.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b) || a >= b; }>, Kind::kSelect};
  out["setp.num.f32"] = {&binary<float, [](float a, float b) { return !unordered(a, b); }>, Kind::kSelect};
  out["setp.nan.f32"] = {&binary<float, [](float a, float b) { return unordered(a, b); }>, Kind::kSelect};
}

}  // namespace

void add_float_operations(Operations& out) {
  out["add.rn.f32"] = {&binary<float, [](float a, float b) { return a + b; }>, Kind::kFloat};
  out["sub.rn.f32"] = {&binary<float, [](float a, float b) { return a - b; }>, Kind::kFloat};
  out["mul.rn.f32"] = {&binary<float, [](float a, float b) { return a * b; }>, Kind::kFloat};
  out["fma.rn.f32"] = {&ternary<float, [](float a, float b, float c) { return std::fma(a, b, c); }>, Kind::kFloat};
  out["div.rn.f32"] = {&binary<float, [](float a, float b) { return a / b; }>, Kind::kFloat};
  out["rcp.rn.f32"] = {&unary<float, [](float a) { return 1.0f / a; }>, Kind::kFloat};
  out["sqrt.rn.f32"] = {&unary<float, [](float a) { return std::sqrt(a); }>, Kind::kFloat};
  out["neg.f32"] = {&unary<float, [](float a) { return -a; }>, Kind::kFloat};
  out["abs.f32"] = {&unary<float, [](float a) { return std::fabs(a); }>, Kind::kFloat};
  out["min.f32"] = {&binary<float, &smaller>, Kind::kFloat};
  out["max.f32"] = {&binary<float, &larger>, Kind::kFloat};
  add_float_comparisons(out);
}

}  // namespace quire::ptx
