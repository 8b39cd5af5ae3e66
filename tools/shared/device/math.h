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
#define SIMGPU_OCML_AS(NAME, OCML)                            \
    extern "C" __device__ float __ocml_##OCML##_f32(float);   \
    extern "C" __device__ double __ocml_##OCML##_f64(double); \
    SIMGPU_MATH(NAME, __ocml_##OCML##_f32, __ocml_##OCML##_f64)
#define SIMGPU_OCML(NAME) SIMGPU_OCML_AS(NAME, NAME)
#define SIMGPU_OCML2(NAME)                                            \
    extern "C" __device__ float __ocml_##NAME##_f32(float, float);    \
    extern "C" __device__ double __ocml_##NAME##_f64(double, double); \
    SIMGPU_MATH2(NAME, __ocml_##NAME##_f32, __ocml_##NAME##_f64)
#define SIMGPU_HALF_BUILTIN(NAME)                             \
    extern "C" __device__ double __ocml_##NAME##_f64(double); \
    SIMGPU_MATH(NAME, __builtin_##NAME##f, __ocml_##NAME##_f64)
// Functions with an integer or a pointer, of type T: F is the suffix of float's builtins, S that of names, W that of the library.
#define SIMGPU_PRIVATE(P) __attribute__((address_space(5))) P
#define SIMGPU_MORE(T, F, S, W)                                                                               \
    extern "C" __device__ T __ocml_pown_##W(T, int), __ocml_len3_##W(T, T, T), __ocml_rlen3_##W(T, T, T);     \
    extern "C" __device__ T __ocml_len4_##W(T, T, T, T), __ocml_rlen4_##W(T, T, T, T);                        \
    extern "C" __device__ T __ocml_remquo_##W(T, T, SIMGPU_PRIVATE(int) *);                                   \
    extern "C" __device__ int __ocml_ilogb_##W(T);                                                            \
    __device__ __forceinline__ T ldexp##S(T x, int n) { return __builtin_ldexp##F(x, n); }                    \
    __device__ __forceinline__ T scalbn##S(T x, int n) { return __builtin_ldexp##F(x, n); }                   \
    __device__ __forceinline__ T scalbln##S(T x, long n) {                                                    \
        return __builtin_ldexp##F(x, n < -9999 ? -9999 : n > 9999 ? 9999 : (int)n);                           \
    }                                                                                                         \
    __device__ __forceinline__ T frexp##S(T x, int *n) { return __builtin_frexp##F(x, n); }                   \
    __device__ __forceinline__ T modf##S(T x, T *whole) {                                                     \
        *whole = __builtin_trunc##F(x);                                                                       \
        return __builtin_copysign##F(__builtin_isinf(x) ? 0 : x - *whole, x);                                 \
    }                                                                                                         \
    __device__ __forceinline__ T remquo##S(T x, T y, int *quotient) {                                         \
        int found;                                                                                            \
        T left = __ocml_remquo_##W(x, y, (SIMGPU_PRIVATE(int) *)&found);                                      \
        *quotient = found;                                                                                    \
        return left;                                                                                          \
    }                                                                                                         \
    __device__ __forceinline__ T powi##S(T x, int n) { return __ocml_pown_##W(x, n); }                        \
    __device__ __forceinline__ int ilogb##S(T x) { return __ocml_ilogb_##W(x); }                              \
    __device__ __forceinline__ long lround##S(T x) { return (long)__builtin_round##F(x); }                    \
    __device__ __forceinline__ long lrint##S(T x) { return (long)__builtin_rint##F(x); }                      \
    __device__ __forceinline__ long long llround##S(T x) { return (long long)__builtin_round##F(x); }         \
    __device__ __forceinline__ long long llrint##S(T x) { return (long long)__builtin_rint##F(x); }           \
    __device__ __forceinline__ T norm3d##S(T x, T y, T z) { return __ocml_len3_##W(x, y, z); }                \
    __device__ __forceinline__ T rnorm3d##S(T x, T y, T z) { return __ocml_rlen3_##W(x, y, z); }              \
    __device__ __forceinline__ T norm4d##S(T x, T y, T z, T w) { return __ocml_len4_##W(x, y, z, w); }        \
    __device__ __forceinline__ T rnorm4d##S(T x, T y, T z, T w) { return __ocml_rlen4_##W(x, y, z, w); }      \
    __device__ __forceinline__ T norm##S(int n, const T *x) {                                                 \
        T sum = 0;                                                                                            \
        for (; n > 0; --n, ++x) sum += *x * *x;                                                               \
        return __builtin_sqrt##F(sum);                                                                        \
    }                                                                                                         \
    __device__ __forceinline__ T rnorm##S(int n, const T *x) { return 1 / norm##S(n, x); }                    \
    __device__ __forceinline__ T jn##S(int n, T x) { return __simgpu_bessel(n, x, j0##S(x), j1##S(x)); }      \
    __device__ __forceinline__ T yn##S(int n, T x) { return __simgpu_bessel(n, x, y0##S(x), y1##S(x)); }      \
    __device__ __forceinline__ void sincos##S(T x, T *sine, T *cosine) { *sine = sin(x), *cosine = cos(x); }  \
    __device__ __forceinline__ void sincospi##S(T x, T *sine, T *cosine) { *sine = sinpi(x), *cosine = cospi(x); }
// Bessel functions of order n from those of orders 0 and 1, by their recurrence.
template <class T> __device__ __forceinline__ T __simgpu_bessel(int n, T x, T before, T now) {
    if (n == 0) return before;
    for (int i = 1; i < n; ++i) {
        T next = 2 * i / x * now - before;
        before = now, now = next;
    }
    return now;
}
#define SIMGPU_EACH(DO, A, B, C, D, E, F) DO(A) DO(B) DO(C) DO(D) DO(E) DO(F)
SIMGPU_EACH(SIMGPU_BUILTIN, sqrt, fabs, floor, ceil, trunc, rint)
SIMGPU_EACH(SIMGPU_OCML, sin, cos, tan, asin, acos, atan)
SIMGPU_EACH(SIMGPU_OCML, sinh, cosh, tanh, asinh, acosh, atanh)
SIMGPU_EACH(SIMGPU_OCML, expm1, log1p, cbrt, erf, erfc, rsqrt)
SIMGPU_EACH(SIMGPU_OCML, tgamma, lgamma, round, exp10, sinpi, cospi)
SIMGPU_HALF_BUILTIN(exp) SIMGPU_HALF_BUILTIN(exp2) SIMGPU_HALF_BUILTIN(log) SIMGPU_HALF_BUILTIN(log2) SIMGPU_HALF_BUILTIN(log10)
SIMGPU_EACH(SIMGPU_OCML, rcbrt, erfinv, erfcinv, erfcx, logb, nearbyint)
SIMGPU_OCML(j0) SIMGPU_OCML(j1) SIMGPU_OCML(y0) SIMGPU_OCML(y1)
SIMGPU_OCML_AS(cyl_bessel_i0, i0) SIMGPU_OCML_AS(cyl_bessel_i1, i1) SIMGPU_OCML_AS(normcdf, ncdf) SIMGPU_OCML_AS(normcdfinv, ncdfinv)
SIMGPU_OCML2(nextafter) SIMGPU_OCML2(rhypot)
SIMGPU_EACH(SIMGPU_OCML2, pow, atan2, fmod, hypot, remainder, fdim)
SIMGPU_BUILTIN2(fmin) SIMGPU_BUILTIN2(fmax) SIMGPU_BUILTIN2(copysign)
__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
SIMGPU_MORE(float, f, f, f32) SIMGPU_MORE(double, , , f64)
__device__ __forceinline__ float fdividef(float x, float y) { return x / y; }
#define __fdividef fdividef
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf
#define SIMGPU_IS(NAME)                                                                         \
    __device__ __forceinline__ bool NAME(float x) { return __builtin_##NAME(x); }               \
    __device__ __forceinline__ bool NAME(double x) { return __builtin_##NAME(x); }              \
    template <class T> __device__ __forceinline__ bool NAME(T x) { return NAME((double)x); }
SIMGPU_IS(isnan) SIMGPU_IS(isinf) SIMGPU_IS(isfinite) SIMGPU_IS(isnormal) SIMGPU_IS(signbit)
#undef SIMGPU_IS
#define __isnan isnan
#define __isnanf isnan
#define __isinf isinf
#define __isinff isinf
#define __finite isfinite
#define __finitef isfinite
#define __signbit signbit
#define __signbitf signbit
#define SIMGPU_COMPARE(NAME)                                                                              \
    __device__ __forceinline__ bool NAME(float x, float y) { return __builtin_##NAME(x, y); }             \
    template <class T, class U> __device__ __forceinline__ bool NAME(T x, U y) { return __builtin_##NAME((double)x, (double)y); }
SIMGPU_COMPARE(isgreater) SIMGPU_COMPARE(isgreaterequal) SIMGPU_COMPARE(isless) SIMGPU_COMPARE(islessequal)
SIMGPU_COMPARE(islessgreater) SIMGPU_COMPARE(isunordered)
#undef SIMGPU_COMPARE
enum { FP_NAN, FP_INFINITE, FP_ZERO, FP_SUBNORMAL, FP_NORMAL };  // as in the C library of Linux
#define SIMGPU_CLASS(T)                                                                                     \
    __device__ __forceinline__ int fpclassify(T x) {                                                        \
        return __builtin_fpclassify(FP_NAN, FP_INFINITE, FP_NORMAL, FP_SUBNORMAL, FP_ZERO, x);              \
    }
SIMGPU_CLASS(float) SIMGPU_CLASS(double)
#undef SIMGPU_CLASS
template <class T> __device__ __forceinline__ int fpclassify(T x) { return fpclassify((double)x); }
// The number in a NaN's tag: decimal, octal after 0, hexadecimal after 0x; 0 for any other text.
__device__ __forceinline__ unsigned long __simgpu_tag(const char *tag) {
    unsigned long base = 10, number = 0;
    if (*tag == '0') {
        base = tag[1] == 'x' || tag[1] == 'X' ? 16 : 8;
        tag += base == 16 ? 2 : 1;
    }
    for (; *tag; ++tag) {
        unsigned digit = *tag <= '9' ? *tag - '0' : (*tag | 32) - 'a' + 10;
        if (digit >= base) return 0;
        number = number * base + digit;
    }
    return number;
}
__device__ __forceinline__ float nanf(const char *tag) {
    return __builtin_bit_cast(float, 0x7fc00000u | (unsigned)(__simgpu_tag(tag) & 0x3fffff));
}
__device__ __forceinline__ double nan(const char *tag) {
    return __builtin_bit_cast(double, 0x7ff8ul << 48 | (__simgpu_tag(tag) & 0x7fffffffffffful));
}
__device__ __forceinline__ float min(float x, float y) { return __builtin_fminf(x, y); }
__device__ __forceinline__ float max(float x, float y) { return __builtin_fmaxf(x, y); }
__device__ __forceinline__ double min(double x, double y) { return __builtin_fmin(x, y); }
__device__ __forceinline__ double max(double x, double y) { return __builtin_fmax(x, y); }
template <class T, class U> __device__ __forceinline__ auto min(T x, U y) { return x < y ? x : y; }
template <class T, class U> __device__ __forceinline__ auto max(T x, U y) { return x > y ? x : y; }
template <class T> __device__ __forceinline__ T abs(T x) { return x < 0 ? -x : x; }
__device__ __forceinline__ long labs(long x) { return abs(x); }
__device__ __forceinline__ long long llabs(long long x) { return abs(x); }
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
