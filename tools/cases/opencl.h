// What OpenCL C kernels find without including anything: the language's words, by clang's builtins.
// Left out: what needs a library of mathematics beyond what LLVM expands itself (sin, pow, tanh, …), images, pipes, printf,
// the atomic types of OpenCL C 2.0 (the functions of 1.x are there).
#define SIMGPU_INLINE static inline __attribute__((overloadable, always_inline, nodebug))  // lines are the caller's

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INTPTR_TYPE__ intptr_t;

#define SIMGPU_VECTORS(T) \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##3 __attribute__((ext_vector_type(3))); \
    typedef T T##4 __attribute__((ext_vector_type(4))); \
    typedef T T##8 __attribute__((ext_vector_type(8))); \
    typedef T T##16 __attribute__((ext_vector_type(16)));
#define SIMGPU_INTEGERS(F) F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong)
#define SIMGPU_FLOATS(F) F(half) F(float) F(double)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
SIMGPU_INTEGERS(SIMGPU_VECTORS)
SIMGPU_FLOATS(SIMGPU_VECTORS)

#define NULL ((void *)0)
#define M_PI 3.14159265358979323846
#define M_PI_F 3.14159265358979323846f
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1.0p-1022
#define DBL_EPSILON 0x1.0p-52
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-LONG_MAX - 1L)
#define ULONG_MAX 18446744073709551615UL

// Of a dimension past the third, OpenCL C 6.15.1 gives index 0 and size 1. No launch here has an offset.
#define SIMGPU_OF(D, NAME, ELSE) ((D) == 0 ? NAME##_x() : (D) == 1 ? NAME##_y() : (D) == 2 ? NAME##_z() : (ELSE))
SIMGPU_INLINE size_t get_local_id(uint d) { return SIMGPU_OF(d, __builtin_amdgcn_workitem_id, 0); }
SIMGPU_INLINE size_t get_group_id(uint d) { return SIMGPU_OF(d, __builtin_amdgcn_workgroup_id, 0); }
SIMGPU_INLINE size_t get_local_size(uint d) { return SIMGPU_OF(d, __builtin_amdgcn_workgroup_size, 1); }
SIMGPU_INLINE size_t get_enqueued_local_size(uint d) { return get_local_size(d); }
SIMGPU_INLINE size_t get_global_size(uint d) { return SIMGPU_OF(d, __builtin_amdgcn_grid_size, 1); }
SIMGPU_INLINE size_t get_num_groups(uint d) { return get_global_size(d) / get_local_size(d); }
SIMGPU_INLINE size_t get_global_offset(uint d) { return 0; }
SIMGPU_INLINE size_t get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }
SIMGPU_INLINE size_t get_local_linear_id(void) {
    return (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) + get_local_id(0);
}
SIMGPU_INLINE size_t get_global_linear_id(void) {
    return (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
}
SIMGPU_INLINE uint get_work_dim(void) {  // hidden_grid_dims, at byte 64 of the hidden arguments of code object version 5
    return ((__constant const ushort *)__builtin_amdgcn_implicitarg_ptr())[32];
}

typedef uint cl_mem_fence_flags;
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
SIMGPU_INLINE void mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup"); }
SIMGPU_INLINE void read_mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
SIMGPU_INLINE void write_mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); }
SIMGPU_INLINE __attribute__((convergent)) void barrier(cl_mem_fence_flags flags) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
SIMGPU_INLINE __attribute__((convergent)) void work_group_barrier(cl_mem_fence_flags flags) { barrier(flags); }

// Functions of every element, for a scalar type and its vectors.
#define SIMGPU_WIDTHS(F, T) F(T, T) F(T##2, T) F(T##3, T) F(T##4, T) F(T##8, T) F(T##16, T)
#define SIMGPU_ORDERED(V, T) \
    SIMGPU_INLINE V min(V x, V y) { return __builtin_elementwise_min(x, y); } \
    SIMGPU_INLINE V max(V x, V y) { return __builtin_elementwise_max(x, y); } \
    SIMGPU_INLINE V clamp(V x, V low, V high) { return min(max(x, low), high); }
#define SIMGPU_ORDERED_BESIDE_SCALARS(V, T) \
    SIMGPU_INLINE V min(V x, T y) { return min(x, (V)(y)); } \
    SIMGPU_INLINE V max(V x, T y) { return max(x, (V)(y)); } \
    SIMGPU_INLINE V clamp(V x, T low, T high) { return clamp(x, (V)(low), (V)(high)); }
#define SIMGPU_VECTOR_WIDTHS(F, T) F(T##2, T) F(T##3, T) F(T##4, T) F(T##8, T) F(T##16, T)
#define SIMGPU_ORDER(T) SIMGPU_WIDTHS(SIMGPU_ORDERED, T) SIMGPU_VECTOR_WIDTHS(SIMGPU_ORDERED_BESIDE_SCALARS, T)
SIMGPU_INTEGERS(SIMGPU_ORDER)
SIMGPU_FLOATS(SIMGPU_ORDER)

#define SIMGPU_ARITHMETIC(V, T) \
    SIMGPU_INLINE V fmin(V x, V y) { return __builtin_elementwise_min(x, y); } \
    SIMGPU_INLINE V fmax(V x, V y) { return __builtin_elementwise_max(x, y); } \
    SIMGPU_INLINE V fma(V x, V y, V z) { return __builtin_elementwise_fma(x, y, z); } \
    SIMGPU_INLINE V mad(V x, V y, V z) { return x * y + z; } \
    SIMGPU_INLINE V fabs(V x) { return __builtin_elementwise_abs(x); } \
    SIMGPU_INLINE V copysign(V x, V y) { return __builtin_elementwise_copysign(x, y); } \
    SIMGPU_INLINE V floor(V x) { return __builtin_elementwise_floor(x); } \
    SIMGPU_INLINE V ceil(V x) { return __builtin_elementwise_ceil(x); } \
    SIMGPU_INLINE V trunc(V x) { return __builtin_elementwise_trunc(x); } \
    SIMGPU_INLINE V rint(V x) { return __builtin_elementwise_rint(x); } \
    SIMGPU_INLINE V sqrt(V x) { return __builtin_elementwise_sqrt(x); } \
    SIMGPU_INLINE V rsqrt(V x) { return (T)1 / sqrt(x); } \
    SIMGPU_INLINE V round(V x) { return __builtin_elementwise_round(x); } \
    SIMGPU_INLINE V sign(V x) { return x > (V)(0) ? (V)(1) : x < (V)(0) ? (V)(-1) : x == (V)(0) ? x : (V)(0); } \
    SIMGPU_INLINE V step(V edge, V x) { return x < edge ? (V)(0) : (V)(1); } \
    SIMGPU_INLINE V degrees(V x) { return x * (T)57.295779513082320877; } \
    SIMGPU_INLINE V radians(V x) { return x * (T)0.017453292519943295769; } \
    SIMGPU_INLINE V mix(V x, V y, V a) { return x + (y - x) * a; }
#define SIMGPU_ARITHMETIC_BESIDE_SCALARS(V, T) \
    SIMGPU_INLINE V fmin(V x, T y) { return fmin(x, (V)(y)); } \
    SIMGPU_INLINE V fmax(V x, T y) { return fmax(x, (V)(y)); } \
    SIMGPU_INLINE V step(T edge, V x) { return step((V)(edge), x); } \
    SIMGPU_INLINE V mix(V x, V y, T a) { return mix(x, y, (V)(a)); }
#define SIMGPU_ARITHMETICS(T) SIMGPU_WIDTHS(SIMGPU_ARITHMETIC, T) SIMGPU_VECTOR_WIDTHS(SIMGPU_ARITHMETIC_BESIDE_SCALARS, T)
SIMGPU_FLOATS(SIMGPU_ARITHMETICS)

// f32 alone: LLVM expands these for amdgcn.
#define SIMGPU_EXPONENTIAL(V, T) \
    SIMGPU_INLINE V exp(V x) { return __builtin_elementwise_exp(x); } \
    SIMGPU_INLINE V exp2(V x) { return __builtin_elementwise_exp2(x); } \
    SIMGPU_INLINE V log(V x) { return __builtin_elementwise_log(x); } \
    SIMGPU_INLINE V log2(V x) { return __builtin_elementwise_log2(x); } \
    SIMGPU_INLINE V log10(V x) { return __builtin_elementwise_log10(x); }
SIMGPU_WIDTHS(SIMGPU_EXPONENTIAL, float)

// The hardware's approximations, of f32; v_sin_f32 and v_cos_f32 take revolutions.
SIMGPU_INLINE float native_recip(float x) { return __builtin_amdgcn_rcpf(x); }
SIMGPU_INLINE float native_divide(float x, float y) { return x * __builtin_amdgcn_rcpf(y); }
SIMGPU_INLINE float native_sqrt(float x) { return __builtin_amdgcn_sqrtf(x); }
SIMGPU_INLINE float native_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
SIMGPU_INLINE float native_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
SIMGPU_INLINE float native_log2(float x) { return __builtin_amdgcn_logf(x); }
SIMGPU_INLINE float native_exp(float x) { return native_exp2(x * 0x1.715476p+0f); }
SIMGPU_INLINE float native_log(float x) { return native_log2(x) * 0x1.62e430p-1f; }
SIMGPU_INLINE float native_powr(float x, float y) { return native_exp2(y * native_log2(x)); }
SIMGPU_INLINE float native_sin(float x) { return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)); }
SIMGPU_INLINE float native_cos(float x) { return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)); }

#define SIMGPU_DOT(V, T, SUM) \
    SIMGPU_INLINE T dot(V x, V y) { V p = x * y; return SUM; } \
    SIMGPU_INLINE T length(V x) { return sqrt(dot(x, x)); } \
    SIMGPU_INLINE T distance(V x, V y) { return length(x - y); } \
    SIMGPU_INLINE V normalize(V x) { return x / length(x); }
#define SIMGPU_GEOMETRY(T) \
    SIMGPU_DOT(T, T, p) SIMGPU_DOT(T##2, T, p.x + p.y) SIMGPU_DOT(T##3, T, p.x + p.y + p.z) \
    SIMGPU_DOT(T##4, T, p.x + p.y + p.z + p.w) \
    SIMGPU_INLINE T##3 cross(T##3 x, T##3 y) { return x.yzx * y.zxy - x.zxy * y.yzx; } \
    SIMGPU_INLINE T##4 cross(T##4 x, T##4 y) { return (T##4)(cross(x.xyz, y.xyz), 0); }
SIMGPU_FLOATS(SIMGPU_GEOMETRY)

#define prefetch(p, count) ((void)0)  // CDNA has no instruction for it
#define isnan(x) ((x) != (x))
#define isinf(x) (fabs(x) == INFINITY)
#define isfinite(x) (fabs(x) < INFINITY)
#define signbit(x) __builtin_signbit(x)
#define select(no, yes, which) ((which) ? (yes) : (no))

// Of the sign bits: a comparison of vectors gives -1 where it holds.
#define SIMGPU_TRUTH(V, T) \
    SIMGPU_INLINE int any(V x) { return __builtin_reduce_or(x) < 0; } \
    SIMGPU_INLINE int all(V x) { return __builtin_reduce_and(x) < 0; }
#define SIMGPU_TRUTHS(T) \
    SIMGPU_INLINE int any(T x) { return x < 0; } \
    SIMGPU_INLINE int all(T x) { return x < 0; } \
    SIMGPU_VECTOR_WIDTHS(SIMGPU_TRUTH, T)
SIMGPU_TRUTHS(char) SIMGPU_TRUTHS(short) SIMGPU_TRUTHS(int) SIMGPU_TRUTHS(long)
#define SIMGPU_COUNT(T) \
    SIMGPU_INLINE T popcount(T x) { return __builtin_popcountl((ulong)x & ~0ul >> (64 - 8 * sizeof(T))); }
SIMGPU_INTEGERS(SIMGPU_COUNT)
SIMGPU_INLINE int clz(int x) { return x ? __builtin_clz(x) : 32; }
SIMGPU_INLINE uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
SIMGPU_INLINE long clz(long x) { return x ? __builtin_clzl(x) : 64; }
SIMGPU_INLINE ulong clz(ulong x) { return x ? __builtin_clzl(x) : 64; }
SIMGPU_INLINE uint abs(int x) { return x < 0 ? -(uint)x : x; }
SIMGPU_INLINE ulong abs(long x) { return x < 0 ? -(ulong)x : x; }
SIMGPU_INLINE uint abs_diff(int x, int y) { return x < y ? (uint)y - x : (uint)x - y; }
SIMGPU_INLINE uint abs_diff(uint x, uint y) { return x < y ? y - x : x - y; }
SIMGPU_INLINE int mul_hi(int x, int y) { return (long)x * y >> 32; }
SIMGPU_INLINE uint mul_hi(uint x, uint y) { return (ulong)x * y >> 32; }
SIMGPU_INLINE int mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
SIMGPU_INLINE uint mul24(uint x, uint y) { return (x & 0xffffff) * (y & 0xffffff); }
SIMGPU_INLINE int mad24(int x, int y, int z) { return mul24(x, y) + z; }
SIMGPU_INLINE uint mad24(uint x, uint y, uint z) { return mul24(x, y) + z; }
SIMGPU_INLINE uint rotate(uint x, uint by) { return __builtin_rotateleft32(x, by); }
SIMGPU_INLINE int rotate(int x, int by) { return __builtin_rotateleft32(x, by); }
SIMGPU_INLINE ulong rotate(ulong x, ulong by) { return __builtin_rotateleft64(x, by); }
SIMGPU_INLINE int sub_sat(int x, int y) { return __builtin_elementwise_sub_sat(x, y); }
SIMGPU_INLINE uint sub_sat(uint x, uint y) { return __builtin_elementwise_sub_sat(x, y); }
SIMGPU_INLINE int add_sat(int x, int y) { return __builtin_elementwise_add_sat(x, y); }
SIMGPU_INLINE uint add_sat(uint x, uint y) { return __builtin_elementwise_add_sat(x, y); }

// vloadN and vstoreN: N elements at an address of one element's alignment.
#define SIMGPU_VECTOR_MEMORY(T, N) \
    typedef T __simgpu_##T##N __attribute__((ext_vector_type(N), aligned(sizeof(T)))); \
    SIMGPU_INLINE T##N vload##N(size_t i, const T *p) { return *(const __simgpu_##T##N *)(p + i * N); } \
    SIMGPU_INLINE T##N vload##N(size_t i, __constant const T *p) { return *(__constant const __simgpu_##T##N *)(p + i * N); } \
    SIMGPU_INLINE void vstore##N(T##N v, size_t i, T *p) { *(__simgpu_##T##N *)(p + i * N) = v; }
#define SIMGPU_MEMORY(T) \
    SIMGPU_VECTOR_MEMORY(T, 2) SIMGPU_VECTOR_MEMORY(T, 4) SIMGPU_VECTOR_MEMORY(T, 8) SIMGPU_VECTOR_MEMORY(T, 16) \
    SIMGPU_INLINE T##3 vload3(size_t i, const T *p) { return (T##3)(p[3 * i], p[3 * i + 1], p[3 * i + 2]); } \
    SIMGPU_INLINE void vstore3(T##3 v, size_t i, T *p) { p[3 * i] = v.x; p[3 * i + 1] = v.y; p[3 * i + 2] = v.z; }
SIMGPU_INTEGERS(SIMGPU_MEMORY)
SIMGPU_FLOATS(SIMGPU_MEMORY)
SIMGPU_INLINE float vload_half(size_t i, const half *p) { return p[i]; }
SIMGPU_INLINE void vstore_half(float v, size_t i, half *p) { p[i] = (half)v; }

// as_TYPE keeps the bits, convert_TYPE the value.
#define as_char(x) __builtin_astype((x), char)
#define convert_char(x) ((char)(x))
#define as_char2(x) __builtin_astype((x), char2)
#define convert_char2(x) __builtin_convertvector((x), char2)
#define as_char3(x) __builtin_astype((x), char3)
#define convert_char3(x) __builtin_convertvector((x), char3)
#define as_char4(x) __builtin_astype((x), char4)
#define convert_char4(x) __builtin_convertvector((x), char4)
#define as_char8(x) __builtin_astype((x), char8)
#define convert_char8(x) __builtin_convertvector((x), char8)
#define as_char16(x) __builtin_astype((x), char16)
#define convert_char16(x) __builtin_convertvector((x), char16)
#define as_uchar(x) __builtin_astype((x), uchar)
#define convert_uchar(x) ((uchar)(x))
#define as_uchar2(x) __builtin_astype((x), uchar2)
#define convert_uchar2(x) __builtin_convertvector((x), uchar2)
#define as_uchar3(x) __builtin_astype((x), uchar3)
#define convert_uchar3(x) __builtin_convertvector((x), uchar3)
#define as_uchar4(x) __builtin_astype((x), uchar4)
#define convert_uchar4(x) __builtin_convertvector((x), uchar4)
#define as_uchar8(x) __builtin_astype((x), uchar8)
#define convert_uchar8(x) __builtin_convertvector((x), uchar8)
#define as_uchar16(x) __builtin_astype((x), uchar16)
#define convert_uchar16(x) __builtin_convertvector((x), uchar16)
#define as_short(x) __builtin_astype((x), short)
#define convert_short(x) ((short)(x))
#define as_short2(x) __builtin_astype((x), short2)
#define convert_short2(x) __builtin_convertvector((x), short2)
#define as_short3(x) __builtin_astype((x), short3)
#define convert_short3(x) __builtin_convertvector((x), short3)
#define as_short4(x) __builtin_astype((x), short4)
#define convert_short4(x) __builtin_convertvector((x), short4)
#define as_short8(x) __builtin_astype((x), short8)
#define convert_short8(x) __builtin_convertvector((x), short8)
#define as_short16(x) __builtin_astype((x), short16)
#define convert_short16(x) __builtin_convertvector((x), short16)
#define as_ushort(x) __builtin_astype((x), ushort)
#define convert_ushort(x) ((ushort)(x))
#define as_ushort2(x) __builtin_astype((x), ushort2)
#define convert_ushort2(x) __builtin_convertvector((x), ushort2)
#define as_ushort3(x) __builtin_astype((x), ushort3)
#define convert_ushort3(x) __builtin_convertvector((x), ushort3)
#define as_ushort4(x) __builtin_astype((x), ushort4)
#define convert_ushort4(x) __builtin_convertvector((x), ushort4)
#define as_ushort8(x) __builtin_astype((x), ushort8)
#define convert_ushort8(x) __builtin_convertvector((x), ushort8)
#define as_ushort16(x) __builtin_astype((x), ushort16)
#define convert_ushort16(x) __builtin_convertvector((x), ushort16)
#define as_int(x) __builtin_astype((x), int)
#define convert_int(x) ((int)(x))
#define as_int2(x) __builtin_astype((x), int2)
#define convert_int2(x) __builtin_convertvector((x), int2)
#define as_int3(x) __builtin_astype((x), int3)
#define convert_int3(x) __builtin_convertvector((x), int3)
#define as_int4(x) __builtin_astype((x), int4)
#define convert_int4(x) __builtin_convertvector((x), int4)
#define as_int8(x) __builtin_astype((x), int8)
#define convert_int8(x) __builtin_convertvector((x), int8)
#define as_int16(x) __builtin_astype((x), int16)
#define convert_int16(x) __builtin_convertvector((x), int16)
#define as_uint(x) __builtin_astype((x), uint)
#define convert_uint(x) ((uint)(x))
#define as_uint2(x) __builtin_astype((x), uint2)
#define convert_uint2(x) __builtin_convertvector((x), uint2)
#define as_uint3(x) __builtin_astype((x), uint3)
#define convert_uint3(x) __builtin_convertvector((x), uint3)
#define as_uint4(x) __builtin_astype((x), uint4)
#define convert_uint4(x) __builtin_convertvector((x), uint4)
#define as_uint8(x) __builtin_astype((x), uint8)
#define convert_uint8(x) __builtin_convertvector((x), uint8)
#define as_uint16(x) __builtin_astype((x), uint16)
#define convert_uint16(x) __builtin_convertvector((x), uint16)
#define as_long(x) __builtin_astype((x), long)
#define convert_long(x) ((long)(x))
#define as_long2(x) __builtin_astype((x), long2)
#define convert_long2(x) __builtin_convertvector((x), long2)
#define as_long3(x) __builtin_astype((x), long3)
#define convert_long3(x) __builtin_convertvector((x), long3)
#define as_long4(x) __builtin_astype((x), long4)
#define convert_long4(x) __builtin_convertvector((x), long4)
#define as_long8(x) __builtin_astype((x), long8)
#define convert_long8(x) __builtin_convertvector((x), long8)
#define as_long16(x) __builtin_astype((x), long16)
#define convert_long16(x) __builtin_convertvector((x), long16)
#define as_ulong(x) __builtin_astype((x), ulong)
#define convert_ulong(x) ((ulong)(x))
#define as_ulong2(x) __builtin_astype((x), ulong2)
#define convert_ulong2(x) __builtin_convertvector((x), ulong2)
#define as_ulong3(x) __builtin_astype((x), ulong3)
#define convert_ulong3(x) __builtin_convertvector((x), ulong3)
#define as_ulong4(x) __builtin_astype((x), ulong4)
#define convert_ulong4(x) __builtin_convertvector((x), ulong4)
#define as_ulong8(x) __builtin_astype((x), ulong8)
#define convert_ulong8(x) __builtin_convertvector((x), ulong8)
#define as_ulong16(x) __builtin_astype((x), ulong16)
#define convert_ulong16(x) __builtin_convertvector((x), ulong16)
#define as_half(x) __builtin_astype((x), half)
#define convert_half(x) ((half)(x))
#define as_half2(x) __builtin_astype((x), half2)
#define convert_half2(x) __builtin_convertvector((x), half2)
#define as_half3(x) __builtin_astype((x), half3)
#define convert_half3(x) __builtin_convertvector((x), half3)
#define as_half4(x) __builtin_astype((x), half4)
#define convert_half4(x) __builtin_convertvector((x), half4)
#define as_half8(x) __builtin_astype((x), half8)
#define convert_half8(x) __builtin_convertvector((x), half8)
#define as_half16(x) __builtin_astype((x), half16)
#define convert_half16(x) __builtin_convertvector((x), half16)
#define as_float(x) __builtin_astype((x), float)
#define convert_float(x) ((float)(x))
#define as_float2(x) __builtin_astype((x), float2)
#define convert_float2(x) __builtin_convertvector((x), float2)
#define as_float3(x) __builtin_astype((x), float3)
#define convert_float3(x) __builtin_convertvector((x), float3)
#define as_float4(x) __builtin_astype((x), float4)
#define convert_float4(x) __builtin_convertvector((x), float4)
#define as_float8(x) __builtin_astype((x), float8)
#define convert_float8(x) __builtin_convertvector((x), float8)
#define as_float16(x) __builtin_astype((x), float16)
#define convert_float16(x) __builtin_convertvector((x), float16)
#define as_double(x) __builtin_astype((x), double)
#define convert_double(x) ((double)(x))
#define as_double2(x) __builtin_astype((x), double2)
#define convert_double2(x) __builtin_convertvector((x), double2)
#define as_double3(x) __builtin_astype((x), double3)
#define convert_double3(x) __builtin_convertvector((x), double3)
#define as_double4(x) __builtin_astype((x), double4)
#define convert_double4(x) __builtin_convertvector((x), double4)
#define as_double8(x) __builtin_astype((x), double8)
#define convert_double8(x) __builtin_convertvector((x), double8)
#define as_double16(x) __builtin_astype((x), double16)
#define convert_double16(x) __builtin_convertvector((x), double16)

// Atomics of OpenCL 1.x: relaxed, of the device's scope; 64-bit ones are called atom_. A pointer keeps its memory, as LLVM
// leaves a volatile access through a generic one generic.
#define SIMGPU_DEVICE 4  // clang's __HIP_MEMORY_SCOPE_AGENT, a macro of HIP's sources alone
#define SIMGPU_FETCH(NAME, BUILTIN, T, MEMORY) \
    SIMGPU_INLINE T NAME(volatile MEMORY T *p, T value) { return BUILTIN(p, value, __ATOMIC_RELAXED, SIMGPU_DEVICE); }
#define SIMGPU_ATOMICS_OF(PREFIX, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_add, __hip_atomic_fetch_add, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_sub, __hip_atomic_fetch_sub, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_min, __hip_atomic_fetch_min, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_max, __hip_atomic_fetch_max, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_and, __hip_atomic_fetch_and, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_or, __hip_atomic_fetch_or, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_xor, __hip_atomic_fetch_xor, T, MEMORY) \
    SIMGPU_FETCH(PREFIX##_xchg, __hip_atomic_exchange, T, MEMORY) \
    SIMGPU_INLINE T PREFIX##_inc(volatile MEMORY T *p) { return PREFIX##_add(p, (T)1); } \
    SIMGPU_INLINE T PREFIX##_dec(volatile MEMORY T *p) { return PREFIX##_sub(p, (T)1); } \
    SIMGPU_INLINE T PREFIX##_cmpxchg(volatile MEMORY T *p, T expected, T value) { \
        __hip_atomic_compare_exchange_strong(p, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, SIMGPU_DEVICE); \
        return expected; \
    }
#define SIMGPU_ATOMICS(PREFIX, T) SIMGPU_ATOMICS_OF(PREFIX, T, __global) SIMGPU_ATOMICS_OF(PREFIX, T, __local)
SIMGPU_ATOMICS(atomic, int)
SIMGPU_ATOMICS(atomic, uint)
SIMGPU_ATOMICS(atom, int)
SIMGPU_ATOMICS(atom, uint)
SIMGPU_ATOMICS(atom, long)
SIMGPU_ATOMICS(atom, ulong)
SIMGPU_FETCH(atomic_xchg, __hip_atomic_exchange, float, __global)
SIMGPU_FETCH(atomic_xchg, __hip_atomic_exchange, float, __local)
