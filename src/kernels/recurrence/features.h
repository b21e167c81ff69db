// Functions of the rows of a call before its kernel runs, by the best instructions of this CPU: feature maps
// of queries and keys, and the check of gates.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// to ← elu(x) + 1: e^x below 0, x + 1 from 0 on. NaN stays NaN. `to` may be x.
void elu_plus_one(const float* x, std::int64_t count, float* to);
void elu_plus_one(const double* x, std::int64_t count, double* to);
/// to ← d times the derivative of elu at x: e^x below 0, 1 from 0 on. `to` may be x or d.
void times_elu_slope(const float* x, const float* d, std::int64_t count, float* to);
void times_elu_slope(const double* x, const double* d, std::int64_t count, double* to);

/// to ← from / divisor. `to` may be `from`.
void divide(const float* from, float divisor, std::int64_t count, float* to);
void divide(const double* from, double divisor, std::int64_t count, double* to);

/// to ← d / divisor. Returns ⟨d, quotient⟩. `to` may be d.
float divide_backward(const float* d, const float* quotient, float divisor, std::int64_t count, float* to);
double divide_backward(const double* d, const double* quotient, double divisor, std::int64_t count,
                       double* to);

/// c = a·b with a [rows, inner], b [inner, columns] and c [rows, columns], all contiguous. `columns` is a
/// multiple of 16.
void multiply_rows(const float* a, const float* b, std::int64_t rows, std::int64_t inner,
                   std::int64_t columns, float* c);
void multiply_rows(const double* a, const double* b, std::int64_t rows, std::int64_t inner,
                   std::int64_t columns, double* c);
/// x ← factor · e^(x - shift). Exponents beyond the largest finite power count as that power. NaN stays NaN.
void exponentials(float shift, float factor, std::int64_t count, float* x);
void exponentials(double shift, double factor, std::int64_t count, double* x);
/// The largest of x that is not NaN; -infinity if there is none.
float largest(const float* x, std::int64_t count);
double largest(const double* x, std::int64_t count);

}  // namespace fovea::kernels
