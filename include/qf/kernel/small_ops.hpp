// Needs: link qf. The small operations of a decoder on one row of f32, for the best instruction set of this CPU.
// Errors are relative and against f64; the exponential is Cody and Waite's reduction with a polynomial (Cephes
// expf), 0 below -87.3 and infinity above 88.3. Nothing allocates, and the same input gives the same bits on
// the same CPU.
#pragma once

#include <cstdint>

#include "qf/core/half.hpp"

namespace qf::kernel {

// out [n] = x / sqrt(mean(x^2) + eps) * weight; out may be x. Error <= 5e-7 each.
void rms_norm(const float* x, const float* weight, std::int64_t n, double eps, float* out);

// Rotates pairs (x[i], x[pairs + i]) by angles given as cosine [pairs] and sine [pairs]: rotary position
// embedding as Hugging Face's checkpoints store it. Error <= 2e-7 of the pair's length.
void rope(float* x, const float* cosine, const float* sine, std::int64_t pairs);

// x [n] = exp(x - max) / sum; NaN anywhere gives NaN everywhere. n >= 1. Error <= 1e-6 + 6e-8 |x - max| each
// (the difference is rounded to f32), and 0 for x - max below -87.3.
void softmax(float* x, std::int64_t n);

// gate [n] = silu(gate) * up = gate / (1 + exp(-gate)) * up. Error <= 1e-6 each, where silu of less than -87.3
// is -0 or, beyond -88.3, 0.
void silu_mul(float* gate, const float* up, std::int64_t n);

// to [n] = from [n] rounded to nearest, ties to even; beyond 65504 infinity.
void to_f16(const float* from, std::int64_t n, f16* to);

// to [n] += from [n].
void add(float* to, const float* from, std::int64_t n);

}  // namespace qf::kernel
