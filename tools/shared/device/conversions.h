// Numbers of one type as another's, and operations that name their rounding: rn to nearest, rd down, ru up, rz to zero.
#pragma once
SIMGPU_INLINE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
SIMGPU_INLINE unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
SIMGPU_INLINE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
SIMGPU_INLINE float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
SIMGPU_INLINE long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
SIMGPU_INLINE double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
SIMGPU_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
SIMGPU_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
SIMGPU_INLINE double __hiloint2double(int high, int low) { return __longlong_as_double((long long)high << 32 | (unsigned)low); }

#define SIMGPU_TO_INTEGER(REAL, INTEGER, TYPE)                                                           \
    SIMGPU_INLINE TYPE __##REAL##2##INTEGER##_rn(REAL x) { return (TYPE)__builtin_elementwise_rint(x); } \
    SIMGPU_INLINE TYPE __##REAL##2##INTEGER##_rd(REAL x) { return (TYPE)__builtin_elementwise_floor(x); } \
    SIMGPU_INLINE TYPE __##REAL##2##INTEGER##_ru(REAL x) { return (TYPE)__builtin_elementwise_ceil(x); } \
    SIMGPU_INLINE TYPE __##REAL##2##INTEGER##_rz(REAL x) { return (TYPE)x; }
#define SIMGPU_ROUNDED(FROM, TYPE, REAL, OCML)                                                                      \
    extern "C" __device__ REAL __ocml_cvtrtn_##OCML(TYPE), __ocml_cvtrtp_##OCML(TYPE), __ocml_cvtrtz_##OCML(TYPE); \
    SIMGPU_INLINE REAL __##FROM##2##REAL##_rn(TYPE x) { return (REAL)x; }                                           \
    SIMGPU_INLINE REAL __##FROM##2##REAL##_rd(TYPE x) { return __ocml_cvtrtn_##OCML(x); }                           \
    SIMGPU_INLINE REAL __##FROM##2##REAL##_ru(TYPE x) { return __ocml_cvtrtp_##OCML(x); }                           \
    SIMGPU_INLINE REAL __##FROM##2##REAL##_rz(TYPE x) { return __ocml_cvtrtz_##OCML(x); }
#define SIMGPU_BOTH(INTEGER, TYPE) SIMGPU_TO_INTEGER(float, INTEGER, TYPE) SIMGPU_TO_INTEGER(double, INTEGER, TYPE)
SIMGPU_BOTH(int, int) SIMGPU_BOTH(uint, unsigned) SIMGPU_BOTH(ll, long long) SIMGPU_BOTH(ull, unsigned long long)
SIMGPU_ROUNDED(int, int, float, f32_s32) SIMGPU_ROUNDED(uint, unsigned, float, f32_u32)
SIMGPU_ROUNDED(ll, long, float, f32_s64) SIMGPU_ROUNDED(ull, unsigned long, float, f32_u64)
SIMGPU_ROUNDED(ll, long, double, f64_s64) SIMGPU_ROUNDED(ull, unsigned long, double, f64_u64)
SIMGPU_ROUNDED(double, double, float, f32_f64)
SIMGPU_INLINE double __int2double_rn(int x) { return x; }
SIMGPU_INLINE double __uint2double_rn(unsigned x) { return x; }

#define SIMGPU_NEAREST(PREFIX, TYPE)                                                       \
    SIMGPU_INLINE TYPE __##PREFIX##add_rn(TYPE x, TYPE y) { return x + y; }                \
    SIMGPU_INLINE TYPE __##PREFIX##sub_rn(TYPE x, TYPE y) { return x - y; }                \
    SIMGPU_INLINE TYPE __##PREFIX##mul_rn(TYPE x, TYPE y) { return x * y; }                \
    SIMGPU_INLINE TYPE __##PREFIX##div_rn(TYPE x, TYPE y) { return x / y; }                \
    SIMGPU_INLINE TYPE __##PREFIX##rcp_rn(TYPE x) { return 1 / x; }                        \
    SIMGPU_INLINE TYPE __##PREFIX##sqrt_rn(TYPE x) { return __builtin_elementwise_sqrt(x); }
SIMGPU_NEAREST(f, float) SIMGPU_NEAREST(d, double)
SIMGPU_INLINE float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
SIMGPU_INLINE double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
SIMGPU_INLINE float __frsqrt_rn(float x) { return __builtin_amdgcn_rsqf(x); }
SIMGPU_INLINE float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
