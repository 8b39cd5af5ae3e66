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
SIMGPU_INLINE __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) { return {x, y}; }
SIMGPU_INLINE float2 __bfloat1622float2(__hip_bfloat162 x) { return float2(x.x, x.y); }
SIMGPU_INLINE __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b) { return a + b; }
SIMGPU_INLINE __hip_bfloat16 __hsub(__hip_bfloat16 a, __hip_bfloat16 b) { return a - b; }
SIMGPU_INLINE __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b) { return a * b; }
SIMGPU_INLINE __hip_bfloat16 __hdiv(__hip_bfloat16 a, __hip_bfloat16 b) { return a / b; }
SIMGPU_INLINE __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __builtin_fmaf((float)a, (float)b, (float)c);
}
