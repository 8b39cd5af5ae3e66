// Numbers of eight bits, as HIP names them: e4m3 and e5m2 of the OCP (gfx950), and those without infinity and -0 (gfx942, _fnuz).
#pragma once
#pragma clang system_header
enum __hip_saturation_t { __HIP_NOSAT, __HIP_SATFINITE };
enum __hip_fp8_interpretation_t { __HIP_E4M3, __HIP_E5M2, __HIP_E4M3_FNUZ, __HIP_E5M2_FNUZ };
typedef unsigned char __hip_fp8_storage_t;
typedef unsigned short __hip_fp8x2_storage_t;
typedef unsigned int __hip_fp8x4_storage_t;

struct __simgpu_fp8 {  // a format: bits of the fraction, bias of the exponent, codes of the largest number, infinity and NaN
    int fraction, bias;
    unsigned most, infinity, nan;
    float largest;
    bool fnuz;
};
SIMGPU_INLINE constexpr __simgpu_fp8 __simgpu_format(__hip_fp8_interpretation_t kind) {
    return kind == __HIP_E4M3        ? __simgpu_fp8{3, 7, 0x7e, 0x7f, 0x7f, 448, false}
           : kind == __HIP_E5M2      ? __simgpu_fp8{2, 15, 0x7b, 0x7c, 0x7e, 57344, false}
           : kind == __HIP_E4M3_FNUZ ? __simgpu_fp8{3, 8, 0x7f, 0x80, 0x80, 240, true}
                                     : __simgpu_fp8{2, 16, 0x7f, 0x80, 0x80, 57344, true};
}
#if defined __gfx942__
#define SIMGPU_FP8_FNUZ true  // formats that instructions convert
#elif defined __gfx950__
#define SIMGPU_FP8_FNUZ false
#endif
SIMGPU_INLINE float __simgpu_power_of_two(int exponent) { return __builtin_bit_cast(float, 127 + exponent << 23); }

// To the nearest, ties to even. Infinity is not saturated.
SIMGPU_INLINE __hip_fp8_storage_t __hip_cvt_float_to_fp8(float x, __hip_saturation_t how, __hip_fp8_interpretation_t kind) {
    __simgpu_fp8 form = __simgpu_format(kind);
    unsigned word = __builtin_bit_cast(unsigned, x), sign = word >> 31 << 7;
    if (!isfinite(x)) return (form.fnuz ? 0 : sign) | (isnan(x) ? form.nan : form.infinity);
#ifdef SIMGPU_FP8_FNUZ
    if (how == __HIP_SATFINITE && form.fnuz == SIMGPU_FP8_FNUZ) {
        x = __builtin_amdgcn_fmed3f(x, -form.largest, form.largest);
        return form.fraction == 2 ? __builtin_amdgcn_cvt_pk_bf8_f32(x, x, 0, false) : __builtin_amdgcn_cvt_pk_fp8_f32(x, x, 0, false);
    }
#endif
    int exponent = (int)(word >> 23 & 255) - 127;
    exponent = exponent < 1 - form.bias ? 1 - form.bias : exponent;
    int steps = (int)__builtin_rintf(__builtin_fabsf(x) * __simgpu_power_of_two(form.fraction - exponent));
    unsigned code = (exponent + form.bias - 1 << form.fraction) + steps;
    if (code > form.most) code = how == __HIP_SATFINITE ? form.most : form.infinity;
    return form.fnuz && (code == 0 || code == form.nan) ? code : sign | code;
}
SIMGPU_INLINE float __simgpu_fp8_float(__hip_fp8_storage_t code, __hip_fp8_interpretation_t kind) {
    __simgpu_fp8 form = __simgpu_format(kind);
#ifdef SIMGPU_FP8_FNUZ
    if (form.fnuz == SIMGPU_FP8_FNUZ)
        return form.fraction == 2 ? __builtin_amdgcn_cvt_f32_bf8(code, 0) : __builtin_amdgcn_cvt_f32_fp8(code, 0);
#endif
    unsigned magnitude = code & 0x7f, exponent = magnitude >> form.fraction, fraction = magnitude & (1 << form.fraction) - 1;
    if (form.fnuz ? code == form.nan : magnitude > form.most) {
        bool infinite = form.infinity != form.nan && magnitude == form.infinity;
        return __builtin_copysignf(infinite ? __builtin_inff() : __builtin_nanf(""), code >> 7 ? -1.0f : 1.0f);
    }
    float steps = exponent ? fraction + (1 << form.fraction) : fraction;
    float value = steps * __simgpu_power_of_two((exponent ? (int)exponent : 1) - form.bias - form.fraction);
    return code >> 7 ? -value : value;
}
SIMGPU_INLINE __hip_fp8x2_storage_t __hip_cvt_float2_to_fp8x2(float2 x, __hip_saturation_t how, __hip_fp8_interpretation_t kind) {
    return __hip_cvt_float_to_fp8(x.x, how, kind) | __hip_cvt_float_to_fp8(x.y, how, kind) << 8;
}
SIMGPU_INLINE __hip_fp8_storage_t __hip_cvt_double_to_fp8(double x, __hip_saturation_t how, __hip_fp8_interpretation_t kind) {
    return __hip_cvt_float_to_fp8((float)x, how, kind);
}
SIMGPU_INLINE __hip_fp8_storage_t __hip_cvt_halfraw_to_fp8(__half_raw x, __hip_saturation_t how, __hip_fp8_interpretation_t kind) {
    return __hip_cvt_float_to_fp8(x.data, how, kind);
}
SIMGPU_INLINE __hip_fp8x2_storage_t __hip_cvt_halfraw2_to_fp8x2(__half2_raw x, __hip_saturation_t how, __hip_fp8_interpretation_t kind) {
    return __hip_cvt_float2_to_fp8x2(float2(x.x.data, x.y.data), how, kind);
}
SIMGPU_INLINE __half_raw __hip_cvt_fp8_to_halfraw(__hip_fp8_storage_t code, __hip_fp8_interpretation_t kind) {
    return {(_Float16)__simgpu_fp8_float(code, kind)};
}
SIMGPU_INLINE __half2_raw __hip_cvt_fp8x2_to_halfraw2(__hip_fp8x2_storage_t codes, __hip_fp8_interpretation_t kind) {
    return {__hip_cvt_fp8_to_halfraw(codes, kind), __hip_cvt_fp8_to_halfraw(codes >> 8, kind)};
}
#define SIMGPU_FP8(NAME, PAIR, FOUR, KIND)                                                                               \
    struct NAME {                                                                                                        \
        __hip_fp8_storage_t __x;                                                                                         \
        static constexpr __hip_saturation_t __default_saturation = __HIP_SATFINITE;                                      \
        static constexpr __hip_fp8_interpretation_t __default_interpret = KIND;                                          \
        NAME() = default;                                                                                                \
        template <class T> SIMGPU_INLINE explicit NAME(T x) : __x(__hip_cvt_float_to_fp8((float)x, __HIP_SATFINITE, KIND)) {} \
        SIMGPU_INLINE operator float() const { return __simgpu_fp8_float(__x, KIND); }                                   \
    };                                                                                                                   \
    struct PAIR {                                                                                                        \
        __hip_fp8x2_storage_t __x;                                                                                       \
        PAIR() = default;                                                                                                \
        SIMGPU_INLINE explicit PAIR(float2 x) : __x(__hip_cvt_float2_to_fp8x2(x, __HIP_SATFINITE, KIND)) {}              \
        SIMGPU_INLINE operator float2() const {                                                                          \
            return float2(__simgpu_fp8_float(__x, KIND), __simgpu_fp8_float(__x >> 8, KIND));                            \
        }                                                                                                                \
    };                                                                                                                   \
    struct FOUR {                                                                                                        \
        __hip_fp8x4_storage_t __x;                                                                                       \
        FOUR() = default;                                                                                                \
        SIMGPU_INLINE explicit FOUR(float4 x) : __x(PAIR(float2(x.x, x.y)).__x | (unsigned)PAIR(float2(x.z, x.w)).__x << 16) {} \
        SIMGPU_INLINE operator float4() const {                                                                          \
            return float4(__simgpu_fp8_float(__x, KIND), __simgpu_fp8_float(__x >> 8, KIND),                             \
                          __simgpu_fp8_float(__x >> 16, KIND), __simgpu_fp8_float(__x >> 24, KIND));                     \
        }                                                                                                                \
    };
SIMGPU_FP8(__hip_fp8_e4m3, __hip_fp8x2_e4m3, __hip_fp8x4_e4m3, __HIP_E4M3)
SIMGPU_FP8(__hip_fp8_e5m2, __hip_fp8x2_e5m2, __hip_fp8x4_e5m2, __HIP_E5M2)
SIMGPU_FP8(__hip_fp8_e4m3_fnuz, __hip_fp8x2_e4m3_fnuz, __hip_fp8x4_e4m3_fnuz, __HIP_E4M3_FNUZ)
SIMGPU_FP8(__hip_fp8_e5m2_fnuz, __hip_fp8x2_e5m2_fnuz, __hip_fp8x4_e5m2_fnuz, __HIP_E5M2_FNUZ)
