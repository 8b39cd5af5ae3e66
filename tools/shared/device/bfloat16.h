// bfloat16: the upper half of a float. hip_bfloat16 is the older type, __hip_bfloat16 the newer one.
#pragma once
SIMGPU_INLINE unsigned short __simgpu_bfloat16(float x) {  // to the nearest, ties to even; a NaN stays one
    unsigned bits = __builtin_bit_cast(unsigned, x);
    return x != x ? (bits >> 16) | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
SIMGPU_INLINE float __simgpu_float(unsigned short bits) { return __builtin_bit_cast(float, (unsigned)bits << 16); }

struct hip_bfloat16 {
    unsigned short data;
    enum truncate_t { truncate };
    hip_bfloat16() = default;
    SIMGPU_INLINE explicit hip_bfloat16(float x) : data(__simgpu_bfloat16(x)) {}
    SIMGPU_INLINE explicit hip_bfloat16(float x, truncate_t) : data(__builtin_bit_cast(unsigned, x) >> 16) {}
    SIMGPU_INLINE operator float() const { return __simgpu_float(data); }
    SIMGPU_INLINE hip_bfloat16 &operator=(float x) { return data = __simgpu_bfloat16(x), *this; }
    static SIMGPU_INLINE hip_bfloat16 round_to_bfloat16(float x) { return hip_bfloat16(x); }
    static SIMGPU_INLINE hip_bfloat16 round_to_bfloat16(float x, truncate_t how) { return hip_bfloat16(x, how); }
};
struct __hip_bfloat16 {
    unsigned short data;
    __hip_bfloat16() = default;
    template <class T, __simgpu_number<T> = 0> SIMGPU_INLINE __hip_bfloat16(T x) : data(__simgpu_bfloat16((float)x)) {}
    SIMGPU_INLINE operator float() const { return __simgpu_float(data); }
};
struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
};

#define SIMGPU_BF_ARITHMETIC(T, OP)                                                                             \
    SIMGPU_INLINE T operator OP(T a, T b) { return T((float)a OP (float)b); }                                   \
    SIMGPU_INLINE T &operator OP##=(T &a, T b) { return a = a OP b; }
#define SIMGPU_BF_COMPARE(T, OP) SIMGPU_INLINE bool operator OP(T a, T b) { return (float)a OP (float)b; }
#define SIMGPU_BF_STEP(T, OP, BY)                             \
    SIMGPU_INLINE T &operator OP(T &a) { return a BY T(1.0f); } \
    SIMGPU_INLINE T operator OP(T &a, int) {                  \
        T before = a;                                         \
        a BY T(1.0f);                                         \
        return before;                                        \
    }
#define SIMGPU_BF_OPERATORS(T)                                                                                           \
    SIMGPU_BF_ARITHMETIC(T, +) SIMGPU_BF_ARITHMETIC(T, -) SIMGPU_BF_ARITHMETIC(T, *) SIMGPU_BF_ARITHMETIC(T, /)          \
    SIMGPU_BF_COMPARE(T, <) SIMGPU_BF_COMPARE(T, <=) SIMGPU_BF_COMPARE(T, >) SIMGPU_BF_COMPARE(T, >=)                    \
    SIMGPU_BF_COMPARE(T, ==) SIMGPU_BF_COMPARE(T, !=) SIMGPU_BF_STEP(T, ++, +=) SIMGPU_BF_STEP(T, --, -=)                \
    SIMGPU_INLINE T operator+(T a) { return a; }                                                                         \
    SIMGPU_INLINE T operator-(T a) { return a.data ^= 0x8000, a; }
SIMGPU_BF_OPERATORS(hip_bfloat16)
SIMGPU_BF_OPERATORS(__hip_bfloat16)
namespace std {
SIMGPU_INLINE bool iszero(hip_bfloat16 a) { return !(a.data & 0x7fff); }
SIMGPU_INLINE bool isnan(hip_bfloat16 a) { return (a.data & 0x7fff) > 0x7f80; }
SIMGPU_INLINE bool isinf(hip_bfloat16 a) { return (a.data & 0x7fff) == 0x7f80; }
}  // namespace std

SIMGPU_INLINE __hip_bfloat16 __float2bfloat16(float x) { return x; }
SIMGPU_INLINE __hip_bfloat16 __double2bfloat16(double x) { return x; }
SIMGPU_INLINE float __bfloat162float(__hip_bfloat16 x) { return x; }
SIMGPU_INLINE __hip_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
SIMGPU_INLINE __hip_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
SIMGPU_INLINE __hip_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
SIMGPU_INLINE __hip_bfloat16 __float2bfloat16_rn(float x) { return x; }
SIMGPU_INLINE __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) { return {x, y}; }
SIMGPU_INLINE __hip_bfloat162 make_bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) { return {x, y}; }
SIMGPU_INLINE __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 x) { return {x, x}; }
SIMGPU_INLINE __hip_bfloat16 __low2bfloat16(__hip_bfloat162 x) { return x.x; }
SIMGPU_INLINE __hip_bfloat16 __high2bfloat16(__hip_bfloat162 x) { return x.y; }
SIMGPU_INLINE float __low2float(__hip_bfloat162 x) { return x.x; }
SIMGPU_INLINE float __high2float(__hip_bfloat162 x) { return x.y; }
SIMGPU_INLINE __hip_bfloat162 __low2bfloat162(__hip_bfloat162 x) { return {x.x, x.x}; }
SIMGPU_INLINE __hip_bfloat162 __high2bfloat162(__hip_bfloat162 x) { return {x.y, x.y}; }
SIMGPU_INLINE __hip_bfloat162 __lowhigh2highlow(__hip_bfloat162 x) { return {x.y, x.x}; }
SIMGPU_INLINE __hip_bfloat162 __lows2bfloat162(__hip_bfloat162 x, __hip_bfloat162 y) { return {x.x, y.x}; }
SIMGPU_INLINE __hip_bfloat162 __highs2bfloat162(__hip_bfloat162 x, __hip_bfloat162 y) { return {x.y, y.y}; }
SIMGPU_INLINE unsigned short __bfloat16_as_ushort(__hip_bfloat16 x) { return x.data; }
SIMGPU_INLINE short __bfloat16_as_short(__hip_bfloat16 x) { return x.data; }
SIMGPU_INLINE __hip_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __builtin_bit_cast(__hip_bfloat16, x); }
SIMGPU_INLINE __hip_bfloat16 __short_as_bfloat16(short x) { return __builtin_bit_cast(__hip_bfloat16, x); }
SIMGPU_INLINE float2 __bfloat1622float2(__hip_bfloat162 x) { return float2(x.x, x.y); }
// Each computes in float and rounds; PAIR does it for both numbers of a pair.
#define SIMGPU_BF1(NAME, PAIR, VALUE)                                                     \
    SIMGPU_INLINE __hip_bfloat16 NAME(__hip_bfloat16 a) {                                 \
        float x = a;                                                                      \
        return VALUE;                                                                     \
    }                                                                                     \
    SIMGPU_INLINE __hip_bfloat162 PAIR(__hip_bfloat162 a) { return {NAME(a.x), NAME(a.y)}; }
#define SIMGPU_BF2(NAME, PAIR, VALUE)                                                     \
    SIMGPU_INLINE __hip_bfloat16 NAME(__hip_bfloat16 a, __hip_bfloat16 b) {               \
        float x = a, y = b;                                                               \
        return VALUE;                                                                     \
    }                                                                                     \
    SIMGPU_INLINE __hip_bfloat162 PAIR(__hip_bfloat162 a, __hip_bfloat162 b) { return {NAME(a.x, b.x), NAME(a.y, b.y)}; }
SIMGPU_BF1(__hneg, __hneg2, -x) SIMGPU_BF1(__habs, __habs2, fabsf(x)) SIMGPU_BF1(hsqrt, h2sqrt, sqrtf(x))
SIMGPU_BF1(hrsqrt, h2rsqrt, rsqrtf(x)) SIMGPU_BF1(hrcp, h2rcp, 1 / x) SIMGPU_BF1(hfloor, h2floor, floorf(x))
SIMGPU_BF1(hceil, h2ceil, ceilf(x)) SIMGPU_BF1(htrunc, h2trunc, truncf(x)) SIMGPU_BF1(hrint, h2rint, rintf(x))
SIMGPU_BF1(hexp, h2exp, expf(x)) SIMGPU_BF1(hexp2, h2exp2, exp2f(x)) SIMGPU_BF1(hlog, h2log, logf(x))
SIMGPU_BF1(hlog2, h2log2, log2f(x)) SIMGPU_BF1(hsin, h2sin, sinf(x)) SIMGPU_BF1(hcos, h2cos, cosf(x))
SIMGPU_BF2(__hadd, __hadd2, x + y) SIMGPU_BF2(__hsub, __hsub2, x - y) SIMGPU_BF2(__hmul, __hmul2, x * y)
SIMGPU_BF2(__hdiv, __h2div, x / y) SIMGPU_BF2(__hmax, __hmax2, fmaxf(x, y)) SIMGPU_BF2(__hmin, __hmin2, fminf(x, y))
SIMGPU_INLINE __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __builtin_fmaf((float)a, (float)b, (float)c);
}
SIMGPU_INLINE __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
SIMGPU_INLINE bool __hisnan(__hip_bfloat16 a) { return isnan((float)a); }
SIMGPU_INLINE bool __hisinf(__hip_bfloat16 a) { return isinf((float)a); }
// NAME compares two numbers, NAME2 both of a pair, as 1 and 0, and ALL tells if both comparisons are true.
#define SIMGPU_BF_TEST(NAME, ALL, OP)                                                                              \
    SIMGPU_INLINE bool NAME(__hip_bfloat16 a, __hip_bfloat16 b) { return a OP b; }                                 \
    SIMGPU_INLINE __hip_bfloat162 NAME##2(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x OP b.x, a.y OP b.y}; } \
    SIMGPU_INLINE bool ALL(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x OP b.x && a.y OP b.y; }
SIMGPU_BF_TEST(__heq, __hbeq2, ==) SIMGPU_BF_TEST(__hne, __hbne2, !=) SIMGPU_BF_TEST(__hlt, __hblt2, <)
SIMGPU_BF_TEST(__hle, __hble2, <=) SIMGPU_BF_TEST(__hgt, __hbgt2, >) SIMGPU_BF_TEST(__hge, __hbge2, >=)
#define SIMGPU_BF_PAIR(OP, PAIR) \
    SIMGPU_INLINE __hip_bfloat162 operator OP(__hip_bfloat162 a, __hip_bfloat162 b) { return PAIR(a, b); }
SIMGPU_BF_PAIR(+, __hadd2) SIMGPU_BF_PAIR(-, __hsub2) SIMGPU_BF_PAIR(*, __hmul2) SIMGPU_BF_PAIR(/, __h2div)
