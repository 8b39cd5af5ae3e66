// Half precision: __half and __half2, by clang's _Float16.
#pragma once
struct __half_raw {
    union {
        _Float16 data;
        unsigned short x;
    };
};
struct __half {
    _Float16 data;
    __half() = default;
    SIMGPU_INLINE __half(__half_raw raw) : data(raw.data) {}
    SIMGPU_INLINE operator __half_raw() const { return {data}; }
    SIMGPU_INLINE __half(_Float16 x) : data(x) {}
    template <class T, __simgpu_number<T> = 0> SIMGPU_INLINE __half(T x) : data((_Float16)x) {}
    template <class T, __simgpu_number<T> = 0> SIMGPU_INLINE operator T() const { return (T)data; }
    SIMGPU_INLINE operator _Float16() const { return data; }
};
typedef __half half;
struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    SIMGPU_INLINE constexpr __half2(__half x, __half y) : x(x), y(y) {}
    SIMGPU_INLINE constexpr __half2(__half both) : x(both), y(both) {}
    template <class T, __simgpu_number<T> = 0> SIMGPU_INLINE __half2(T both) : x(both), y(both) {}
};
typedef __half2 half2;
struct __half2_raw {
    __half_raw x, y;
};

#define SIMGPU_HALF(NAME, VALUE) __device__ __forceinline__ __half NAME(__half a) { return VALUE; }
#define SIMGPU_HALF_2(NAME, VALUE) __device__ __forceinline__ __half NAME(__half a, __half b) { return VALUE; }
#define SIMGPU_HALF2(NAME, OF) __device__ __forceinline__ __half2 NAME(__half2 a) { return {OF(a.x), OF(a.y)}; }
#define SIMGPU_HALF2_2(NAME, OF) __device__ __forceinline__ __half2 NAME(__half2 a, __half2 b) { return {OF(a.x, b.x), OF(a.y, b.y)}; }

// Arithmetic.
__device__ __forceinline__ __half __clamp_01(__half a) {
    return __builtin_fmaxf16((_Float16)0, __builtin_fminf16((_Float16)1, a.data));
}
__device__ __forceinline__ __half __hfma(__half a, __half b, __half c) { return __builtin_fmaf16(a.data, b.data, c.data); }
__device__ __forceinline__ __half __hfma_sat(__half a, __half b, __half c) { return __clamp_01(__hfma(a, b, c)); }
__device__ __forceinline__ __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
__device__ __forceinline__ __half2 __hfma2_sat(__half2 a, __half2 b, __half2 c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
__device__ __forceinline__ float amd_mixed_dot(__half2 a, __half2 b, float c, bool saturate) {
    float sum = (float)a.x.data * (float)b.x.data + ((float)a.y.data * (float)b.y.data + c);
    return saturate ? __builtin_fminf(__builtin_fmaxf(sum, -3.402823466e38f), 3.402823466e38f) : sum;
}
#define SIMGPU_HALF_ARITHMETIC(NAME, OP)                                        \
    SIMGPU_HALF_2(__h##NAME, a.data OP b.data)                                  \
    SIMGPU_HALF_2(__h##NAME##_rn, a.data OP b.data)                             \
    SIMGPU_HALF_2(__h##NAME##_sat, __clamp_01(__h##NAME(a, b)))                 \
    SIMGPU_HALF2_2(__h##NAME##2, __h##NAME)                                     \
    SIMGPU_HALF2_2(__h##NAME##2_rn, __h##NAME)                                  \
    SIMGPU_HALF2_2(__h##NAME##2_sat, __h##NAME##_sat)                           \
    __device__ __forceinline__ __half operator OP(__half a, __half b) { return __h##NAME(a, b); }     \
    __device__ __forceinline__ __half2 operator OP(__half2 a, __half2 b) { return __h##NAME##2(a, b); } \
    __device__ __forceinline__ __half &operator OP##=(__half &a, __half b) { return a = a OP b; }     \
    __device__ __forceinline__ __half2 &operator OP##=(__half2 &a, __half2 b) { return a = a OP b; }
SIMGPU_HALF_ARITHMETIC(add, +) SIMGPU_HALF_ARITHMETIC(sub, -) SIMGPU_HALF_ARITHMETIC(mul, *) SIMGPU_HALF_ARITHMETIC(div, /)
SIMGPU_HALF2_2(__h2div, __hdiv)
SIMGPU_HALF(__hneg, -a.data) SIMGPU_HALF(__habs, __builtin_fabsf16(a.data)) SIMGPU_HALF2(__hneg2, __hneg) SIMGPU_HALF2(__habs2, __habs)
__device__ __forceinline__ __half operator-(__half a) { return __hneg(a); }
__device__ __forceinline__ __half2 operator-(__half2 a) { return __hneg2(a); }
#define SIMGPU_HALF_STEP(T, OP, BY)                                          \
    __device__ __forceinline__ T &operator OP(T &a) { return a BY T(1); }    \
    __device__ __forceinline__ T operator OP(T &a, int) {                    \
        T before = a;                                                        \
        a BY T(1);                                                           \
        return before;                                                       \
    }
SIMGPU_HALF_STEP(__half, ++, +=) SIMGPU_HALF_STEP(__half, --, -=) SIMGPU_HALF_STEP(__half2, ++, +=) SIMGPU_HALF_STEP(__half2, --, -=)

// Comparisons; those whose names end with u hold where one is a NaN, too.
#define SIMGPU_HALF_COMPARE(NAME, VALUE)                                                                                      \
    __device__ __forceinline__ bool __h##NAME(__half a, __half b) { return VALUE; }                                           \
    __device__ __forceinline__ __half2 __h##NAME##2(__half2 a, __half2 b) { return {__h##NAME(a.x, b.x), __h##NAME(a.y, b.y)}; } \
    __device__ __forceinline__ bool __hb##NAME##2(__half2 a, __half2 b) { return __h##NAME(a.x, b.x) && __h##NAME(a.y, b.y); }
#define SIMGPU_HALF_COMPARES(NAME, OP, OPPOSITE)                                                              \
    SIMGPU_HALF_COMPARE(NAME, a.data OP b.data)                                                               \
    SIMGPU_HALF_COMPARE(NAME##u, !(a.data OPPOSITE b.data))                                                   \
    __device__ __forceinline__ bool operator OP(__half a, __half b) { return a.data OP b.data; }
SIMGPU_HALF_COMPARES(lt, <, >=) SIMGPU_HALF_COMPARES(le, <=, >) SIMGPU_HALF_COMPARES(gt, >, <=) SIMGPU_HALF_COMPARES(ge, >=, <)
SIMGPU_HALF_COMPARE(eq, a.data == b.data) SIMGPU_HALF_COMPARE(ne, a.data < b.data || a.data > b.data)
SIMGPU_HALF_COMPARE(equ, !(a.data < b.data || a.data > b.data)) SIMGPU_HALF_COMPARE(neu, a.data != b.data)
__device__ __forceinline__ bool operator==(__half a, __half b) { return a.data == b.data; }
__device__ __forceinline__ bool operator!=(__half a, __half b) { return a.data != b.data; }
__device__ __forceinline__ bool operator==(__half2 a, __half2 b) { return __hbeq2(a, b); }
__device__ __forceinline__ bool operator!=(__half2 a, __half2 b) { return !__hbeq2(a, b); }
__device__ __forceinline__ bool operator<(__half2 a, __half2 b) { return __hblt2(a, b); }
__device__ __forceinline__ bool operator>(__half2 a, __half2 b) { return __hbgt2(a, b); }
__device__ __forceinline__ bool operator<=(__half2 a, __half2 b) { return !(a > b); }  // as HIP has it: not of both
__device__ __forceinline__ bool operator>=(__half2 a, __half2 b) { return !(a < b); }
__device__ __forceinline__ bool __hisnan(__half a) { return a.data != a.data; }
__device__ __forceinline__ int __hisinf(__half a) { return __builtin_isinf((float)a.data) ? a.data > 0 ? 1 : -1 : 0; }
SIMGPU_HALF2(__hisnan2, __hisnan) SIMGPU_HALF2(__hisinf2, __hisinf)
SIMGPU_HALF_2(__hmax, __builtin_fmaxf16(a.data, b.data)) SIMGPU_HALF_2(__hmin, __builtin_fminf16(a.data, b.data))
SIMGPU_HALF_2(__hmax_nan, __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b))
SIMGPU_HALF_2(__hmin_nan, __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b))
SIMGPU_HALF2_2(__hmax2, __hmax) SIMGPU_HALF2_2(__hmin2, __hmin)

// Conversions: by the ends of their names to the nearest, towards zero, down and up.
SIMGPU_INLINE __half __ushort_as_half(unsigned short x) { return __builtin_bit_cast(_Float16, x); }
SIMGPU_INLINE __half __short_as_half(short x) { return __builtin_bit_cast(_Float16, x); }
SIMGPU_INLINE unsigned short __half_as_ushort(__half x) { return __builtin_bit_cast(unsigned short, x.data); }
SIMGPU_INLINE short __half_as_short(__half x) { return __builtin_bit_cast(short, x.data); }
SIMGPU_INLINE __half __simgpu_half_step(__half x, bool up) {  // to the next one
    unsigned short bits = __half_as_ushort(x);
    if (!(bits & 0x7fff)) return __ushort_as_half(up ? 1 : 0x8001);
    return __ushort_as_half(bits + (up == !(bits >> 15) ? 1 : -1));
}
SIMGPU_INLINE __half __simgpu_half_rd(float x) {
    __half near = (_Float16)x;
    return (float)near.data > x ? __simgpu_half_step(near, false) : near;
}
SIMGPU_INLINE __half __simgpu_half_ru(float x) {
    __half near = (_Float16)x;
    return (float)near.data < x ? __simgpu_half_step(near, true) : near;
}
// As HIP has them: to integers all cut off, from integers all are to the nearest.
#define SIMGPU_HALF_ROUND(T, NAME, HOW)                                    \
    SIMGPU_INLINE T __half2##NAME##_##HOW(__half x) { return (T)x.data; }  \
    SIMGPU_INLINE __half __##NAME##2half_##HOW(T x) { return (_Float16)x; }
#define SIMGPU_HALF_ROUNDS(T, NAME) \
    SIMGPU_HALF_ROUND(T, NAME, rn) SIMGPU_HALF_ROUND(T, NAME, rz) SIMGPU_HALF_ROUND(T, NAME, rd) SIMGPU_HALF_ROUND(T, NAME, ru)
SIMGPU_HALF_ROUNDS(int, int) SIMGPU_HALF_ROUNDS(unsigned, uint) SIMGPU_HALF_ROUNDS(short, short)
SIMGPU_HALF_ROUNDS(unsigned short, ushort) SIMGPU_HALF_ROUNDS(long long, ll) SIMGPU_HALF_ROUNDS(unsigned long long, ull)
SIMGPU_INLINE __half __float2half(float x) { return (_Float16)x; }
SIMGPU_INLINE __half __float2half_rn(float x) { return (_Float16)x; }
SIMGPU_INLINE __half __float2half_rz(float x) { return x < 0 ? __simgpu_half_ru(x) : __simgpu_half_rd(x); }
SIMGPU_INLINE __half __float2half_rd(float x) { return __simgpu_half_rd(x); }
SIMGPU_INLINE __half __float2half_ru(float x) { return __simgpu_half_ru(x); }
SIMGPU_INLINE __half __double2half(double x) { return (_Float16)x; }
SIMGPU_INLINE float __half2float(__half x) { return x.data; }
SIMGPU_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
SIMGPU_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
SIMGPU_INLINE __half2 __half2half2(__half x) { return {x, x}; }
SIMGPU_INLINE __half __low2half(__half2 x) { return x.x; }
SIMGPU_INLINE __half __high2half(__half2 x) { return x.y; }
SIMGPU_INLINE __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
SIMGPU_INLINE __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
SIMGPU_INLINE __half2 __lows2half2(__half2 x, __half2 y) { return {x.x, y.x}; }
SIMGPU_INLINE __half2 __highs2half2(__half2 x, __half2 y) { return {x.y, y.y}; }
SIMGPU_INLINE __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
SIMGPU_INLINE __half2 __float2half2_rn(float x) { return __half2(x); }
SIMGPU_INLINE __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
SIMGPU_INLINE __half2 __float22half2_rn(float2 x) { return {__float2half(x.x), __float2half(x.y)}; }
SIMGPU_INLINE float2 __half22float2(__half2 x) { return float2(x.x.data, x.y.data); }
SIMGPU_INLINE float __low2float(__half2 x) { return x.x.data; }
SIMGPU_INLINE float __high2float(__half2 x) { return x.y.data; }

// Mathematics, in single precision where that costs nothing.
#define SIMGPU_HALF_MATH(NAME, VALUE) SIMGPU_HALF(h##NAME, (_Float16)(VALUE)) SIMGPU_HALF2(h2##NAME, h##NAME)
SIMGPU_HALF_MATH(trunc, __builtin_truncf16(a.data)) SIMGPU_HALF_MATH(ceil, __builtin_ceilf16(a.data))
SIMGPU_HALF_MATH(floor, __builtin_floorf16(a.data)) SIMGPU_HALF_MATH(rint, __builtin_rintf16(a.data))
SIMGPU_HALF_MATH(sqrt, __builtin_sqrtf(a.data)) SIMGPU_HALF_MATH(rsqrt, 1 / __builtin_sqrtf(a.data))
SIMGPU_HALF_MATH(rcp, 1 / (float)a.data) SIMGPU_HALF_MATH(exp, expf(a.data)) SIMGPU_HALF_MATH(exp2, exp2f(a.data))
SIMGPU_HALF_MATH(exp10, exp10f(a.data)) SIMGPU_HALF_MATH(log, logf(a.data)) SIMGPU_HALF_MATH(log2, log2f(a.data))
SIMGPU_HALF_MATH(log10, log10f(a.data)) SIMGPU_HALF_MATH(sin, sinf(a.data)) SIMGPU_HALF_MATH(cos, cosf(a.data))
SIMGPU_HALF_MATH(tanh, tanhf(a.data))
// Replaces a word by a function of it, by a swap, so that no other access comes between; returns the word before.
template <class F> __device__ __forceinline__ unsigned __simgpu_replace(unsigned *word, F next) {
    unsigned seen = __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT), before;
    do {
        before = seen;
        seen = atomicCAS(word, before, next(before));
    } while (seen != before);
    return before;
}
__device__ __forceinline__ __half atomicAdd(__half *at, __half value) {
    unsigned *word = (unsigned *)((unsigned long)at & ~3ul), shift = (unsigned long)at & 2 ? 16 : 0;
    return __ushort_as_half(__simgpu_replace(word, [=](unsigned before) {
        unsigned sum = __half_as_ushort(__ushort_as_half(before >> shift) + value);
        return (before & ~(0xffffu << shift)) | sum << shift;
    }) >> shift);
}
__device__ __forceinline__ __half2 atomicAdd(__half2 *at, __half2 value) {
    return __builtin_bit_cast(__half2, __simgpu_replace((unsigned *)at, [=](unsigned before) {
        return __builtin_bit_cast(unsigned, __builtin_bit_cast(__half2, before) + value);
    }));
}
__device__ __forceinline__ __half2 unsafeAtomicAdd(__half2 *at, __half2 value) { return atomicAdd(at, value); }
