#pragma once
// Math: by clang's builtins what the hardware or LLVM has, else by ROCm's device library. As in C++, integers are taken as double.
#define SIMGPU_MATH(NAME, F32, F64)                                                       \
    __device__ __forceinline__ float NAME##f(float x) { return F32(x); }                  \
    __device__ __forceinline__ float NAME(float x) { return F32(x); }                     \
    __device__ __forceinline__ double NAME(double x) { return F64(x); }                   \
    template <class T> __device__ __forceinline__ double NAME(T x) { return F64((double)x); }
#define SIMGPU_MATH2(NAME, F32, F64)                                                                              \
    __device__ __forceinline__ float NAME##f(float x, float y) { return F32(x, y); }                              \
    __device__ __forceinline__ float NAME(float x, float y) { return F32(x, y); }                                 \
    __device__ __forceinline__ double NAME(double x, double y) { return F64(x, y); }                              \
    template <class T, class U> __device__ __forceinline__ double NAME(T x, U y) { return F64((double)x, (double)y); }
#define SIMGPU_BUILTIN(NAME) SIMGPU_MATH(NAME, __builtin_##NAME##f, __builtin_##NAME)
#define SIMGPU_BUILTIN2(NAME) SIMGPU_MATH2(NAME, __builtin_##NAME##f, __builtin_##NAME)
#define SIMGPU_OCML(NAME)                                     \
    extern "C" __device__ float __ocml_##NAME##_f32(float);   \
    extern "C" __device__ double __ocml_##NAME##_f64(double); \
    SIMGPU_MATH(NAME, __ocml_##NAME##_f32, __ocml_##NAME##_f64)
#define SIMGPU_OCML2(NAME)                                            \
    extern "C" __device__ float __ocml_##NAME##_f32(float, float);    \
    extern "C" __device__ double __ocml_##NAME##_f64(double, double); \
    SIMGPU_MATH2(NAME, __ocml_##NAME##_f32, __ocml_##NAME##_f64)
#define SIMGPU_HALF_BUILTIN(NAME)                             \
    extern "C" __device__ double __ocml_##NAME##_f64(double); \
    SIMGPU_MATH(NAME, __builtin_##NAME##f, __ocml_##NAME##_f64)
#define SIMGPU_EACH(DO, A, B, C, D, E, F) DO(A) DO(B) DO(C) DO(D) DO(E) DO(F)
SIMGPU_EACH(SIMGPU_BUILTIN, sqrt, fabs, floor, ceil, trunc, rint)
SIMGPU_EACH(SIMGPU_OCML, sin, cos, tan, asin, acos, atan)
SIMGPU_EACH(SIMGPU_OCML, sinh, cosh, tanh, asinh, acosh, atanh)
SIMGPU_EACH(SIMGPU_OCML, expm1, log1p, cbrt, erf, erfc, rsqrt)
SIMGPU_EACH(SIMGPU_OCML, tgamma, lgamma, round, exp10, sinpi, cospi)
SIMGPU_HALF_BUILTIN(exp) SIMGPU_HALF_BUILTIN(exp2) SIMGPU_HALF_BUILTIN(log) SIMGPU_HALF_BUILTIN(log2) SIMGPU_HALF_BUILTIN(log10)
SIMGPU_EACH(SIMGPU_OCML2, pow, atan2, fmod, hypot, remainder, fdim)
SIMGPU_BUILTIN2(fmin) SIMGPU_BUILTIN2(fmax) SIMGPU_BUILTIN2(copysign)
__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ __forceinline__ void sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
__device__ __forceinline__ void sincos(double x, double *sine, double *cosine) { *sine = sin(x), *cosine = cos(x); }
#define __expf expf
#define __logf logf
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
__device__ __forceinline__ float min(float x, float y) { return __builtin_fminf(x, y); }
__device__ __forceinline__ float max(float x, float y) { return __builtin_fmaxf(x, y); }
__device__ __forceinline__ double min(double x, double y) { return __builtin_fmin(x, y); }
__device__ __forceinline__ double max(double x, double y) { return __builtin_fmax(x, y); }
template <class T, class U> __device__ __forceinline__ auto min(T x, U y) { return x < y ? x : y; }
template <class T, class U> __device__ __forceinline__ auto max(T x, U y) { return x > y ? x : y; }
template <class T> __device__ __forceinline__ T abs(T x) { return x < 0 ? -x : x; }
// Dot products; those of int and unsigned are of eight numbers of four bits. Only that of __half2 (half.h) saturates.
template <class V, class T> __device__ __forceinline__ T __simgpu_dot(V a, V b, T sum) {
    a.each([&](auto x, auto y) { sum += (T)x * (T)y; }, b);
    return sum;
}
template <class T> __device__ __forceinline__ T __simgpu_dot8(T a, T b, T sum) {
    for (int i = 0; i < 32; i += 4) sum += (a << (28 - i) >> 28) * (b << (28 - i) >> 28);
    return sum;
}
__device__ __forceinline__ int amd_mixed_dot(short2 a, short2 b, int c, bool) { return __simgpu_dot(a, b, c); }
__device__ __forceinline__ unsigned amd_mixed_dot(ushort2 a, ushort2 b, unsigned c, bool) { return __simgpu_dot(a, b, c); }
__device__ __forceinline__ int amd_mixed_dot(char4 a, char4 b, int c, bool) { return __simgpu_dot(a, b, c); }
__device__ __forceinline__ unsigned amd_mixed_dot(uchar4 a, uchar4 b, unsigned c, bool) { return __simgpu_dot(a, b, c); }
__device__ __forceinline__ int amd_mixed_dot(int a, int b, int c, bool) { return __simgpu_dot8(a, b, c); }
__device__ __forceinline__ unsigned amd_mixed_dot(unsigned a, unsigned b, unsigned c, bool) { return __simgpu_dot8(a, b, c); }
