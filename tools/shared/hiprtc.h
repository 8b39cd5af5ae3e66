// What hiprtc's programs find without including anything: the words of HIP's device language, by clang's builtins.
#pragma once
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(most, ...) __attribute__((amdgpu_flat_work_group_size(1, most)))
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

typedef __SIZE_TYPE__ size_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
#define warpSize 64

#define SIMGPU_INDEX(TYPE, X, Y, Z)                                     \
    struct TYPE {                                                       \
        __declspec(property(get = get_x)) unsigned x;                   \
        __declspec(property(get = get_y)) unsigned y;                   \
        __declspec(property(get = get_z)) unsigned z;                   \
        __device__ __forceinline__ unsigned get_x() const { return X; } \
        __device__ __forceinline__ unsigned get_y() const { return Y; } \
        __device__ __forceinline__ unsigned get_z() const { return Z; } \
    };
SIMGPU_INDEX(__simgpu_thread, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
SIMGPU_INDEX(__simgpu_block, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
             __builtin_amdgcn_workgroup_id_z())
SIMGPU_INDEX(__simgpu_size, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_workgroup_size_z())
SIMGPU_INDEX(__simgpu_grid, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
             __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
static const __device__ __simgpu_thread threadIdx;
static const __device__ __simgpu_block blockIdx;
static const __device__ __simgpu_size blockDim;
static const __device__ __simgpu_grid gridDim;

// Vectors: members, alignment and arithmetic by element as HIP has them.
#define SIMGPU_VECTOR_OPERATOR(TYPE, OP, EACH) \
    __host__ __device__ __forceinline__ TYPE operator OP(const TYPE &a, const TYPE &b) { return TYPE{EACH}; }
#define SIMGPU_VECTOR_OPERATORS(TYPE, EACH)        \
    SIMGPU_VECTOR_OPERATOR(TYPE, +, EACH(+))       \
    SIMGPU_VECTOR_OPERATOR(TYPE, -, EACH(-))       \
    SIMGPU_VECTOR_OPERATOR(TYPE, *, EACH(*))       \
    SIMGPU_VECTOR_OPERATOR(TYPE, /, EACH(/))
#define SIMGPU_EACH1(OP) (decltype(a.x))(a.x OP b.x)
#define SIMGPU_EACH2(OP) SIMGPU_EACH1(OP), (decltype(a.x))(a.y OP b.y)
#define SIMGPU_EACH3(OP) SIMGPU_EACH2(OP), (decltype(a.x))(a.z OP b.z)
#define SIMGPU_EACH4(OP) SIMGPU_EACH3(OP), (decltype(a.x))(a.w OP b.w)
#define SIMGPU_VECTORS(T, NAME)                                                                                               \
    struct NAME##1 { T x; };                                                                                                  \
    struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                                                                        \
    struct NAME##3 { T x, y, z; };                                                                                            \
    struct alignas(4 * sizeof(T)) NAME##4 { T x, y, z, w; };                                                                  \
    __host__ __device__ __forceinline__ NAME##1 make_##NAME##1(T x) { return {x}; }                                           \
    __host__ __device__ __forceinline__ NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                   \
    __host__ __device__ __forceinline__ NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                           \
    __host__ __device__ __forceinline__ NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }                   \
    SIMGPU_VECTOR_OPERATORS(NAME##1, SIMGPU_EACH1) SIMGPU_VECTOR_OPERATORS(NAME##2, SIMGPU_EACH2)                             \
    SIMGPU_VECTOR_OPERATORS(NAME##3, SIMGPU_EACH3) SIMGPU_VECTOR_OPERATORS(NAME##4, SIMGPU_EACH4)
SIMGPU_VECTORS(signed char, char) SIMGPU_VECTORS(unsigned char, uchar) SIMGPU_VECTORS(short, short)
SIMGPU_VECTORS(unsigned short, ushort) SIMGPU_VECTORS(int, int) SIMGPU_VECTORS(unsigned, uint)
SIMGPU_VECTORS(long, long) SIMGPU_VECTORS(unsigned long, ulong) SIMGPU_VECTORS(long long, longlong)
SIMGPU_VECTORS(unsigned long long, ulonglong) SIMGPU_VECTORS(float, float) SIMGPU_VECTORS(double, double)

__device__ __forceinline__ void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ __forceinline__ void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }

#define SIMGPU_ATOMIC(NAME, BUILTIN)                                                \
    template <class T, class U> __device__ __forceinline__ T NAME(T *at, U value) { \
        return BUILTIN(at, (T)value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);   \
    }
SIMGPU_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
SIMGPU_ATOMIC(atomicSub, __hip_atomic_fetch_sub)
SIMGPU_ATOMIC(atomicMin, __hip_atomic_fetch_min)
SIMGPU_ATOMIC(atomicMax, __hip_atomic_fetch_max)
SIMGPU_ATOMIC(atomicAnd, __hip_atomic_fetch_and)
SIMGPU_ATOMIC(atomicOr, __hip_atomic_fetch_or)
SIMGPU_ATOMIC(atomicXor, __hip_atomic_fetch_xor)
SIMGPU_ATOMIC(atomicExch, __hip_atomic_exchange)
template <class T> __device__ __forceinline__ T atomicCAS(T *at, T expected, T value) {
    __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}

// Between the lanes of a wave, in groups of `width` lanes.
__device__ __forceinline__ unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
template <class T> __device__ __forceinline__ T __simgpu_of_lane(T value, int lane) {
    static_assert(sizeof(T) % 4 == 0, "values of 4 or 8 bytes go between lanes");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof value);
    for (int &word : words) word = __builtin_amdgcn_ds_bpermute(4 * lane, word);
    __builtin_memcpy(&value, words, sizeof value);
    return value;
}
template <class T> __device__ __forceinline__ T __shfl(T value, int from, int width = warpSize) {
    int self = __lane_id();
    return __simgpu_of_lane(value, (from & (width - 1)) + (self & ~(width - 1)));
}
template <class T> __device__ __forceinline__ T __shfl_up(T value, unsigned by, int width = warpSize) {
    int self = __lane_id(), from = self - (int)by;
    return __simgpu_of_lane(value, from < (self & ~(width - 1)) ? self : from);
}
template <class T> __device__ __forceinline__ T __shfl_down(T value, unsigned by, int width = warpSize) {
    int self = __lane_id(), from = self + (int)by;
    return __simgpu_of_lane(value, (self & (width - 1)) + (int)by >= width ? self : from);
}
template <class T> __device__ __forceinline__ T __shfl_xor(T value, int mask, int width = warpSize) {
    int self = __lane_id(), from = self ^ mask;
    return __simgpu_of_lane(value, from >= ((self + width) & ~(width - 1)) ? self : from);
}
__device__ __forceinline__ unsigned long long __ballot(int condition) {
    return __builtin_amdgcn_uicmp((unsigned)condition, 0u, 33);
}
__device__ __forceinline__ int __any(int condition) { return __ballot(condition) != 0; }
__device__ __forceinline__ int __all(int condition) { return __ballot(!condition) == 0; }

// Bits.
__device__ __forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
__device__ __forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__device__ __forceinline__ int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
__device__ __forceinline__ int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
__device__ __forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
__device__ __forceinline__ int __ffsll(long long x) { return __builtin_ffsll(x); }
__device__ __forceinline__ int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
__device__ __forceinline__ unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__device__ __forceinline__ float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
__device__ __forceinline__ float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__device__ __forceinline__ long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
__device__ __forceinline__ double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

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

extern "C" __device__ int printf(const char *format, ...);
#define assert(condition) \
    ((condition) ? (void)0 : (printf("%s:%d: assertion `%s' failed.\n", __FILE__, __LINE__, #condition), __builtin_trap()))
