// What hiprtc's programs find without including anything: the words of HIP's device language, by clang's builtins. The files beside
// this one are its parts: vectors, math, memory, half, bfloat16, complex, constants, groups.
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
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z
#define __align__(bytes) __attribute__((aligned(bytes)))
typedef __SIZE_TYPE__ size_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
#if defined __HIPRTC_PTRDIFF_T_IS_LONG_LONG__ && __HIPRTC_PTRDIFF_T_IS_LONG_LONG__ == 1
typedef long long ptrdiff_t;
#else
typedef __PTRDIFF_TYPE__ ptrdiff_t;
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
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

#include "vectors.h"

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
    int words[(sizeof(T) + 3) / 4];
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
__device__ __forceinline__ unsigned long long __activemask() { return __ballot(1); }
__device__ __forceinline__ int __any(int condition) { return __ballot(condition) != 0; }
__device__ __forceinline__ int __all(int condition) { return __ballot(!condition) == 0; }
// The mask names lanes that take part: all that are active do.
template <class M, class T> __device__ __forceinline__ T __shfl_sync(M, T value, int from, int width = warpSize) {
    return __shfl(value, from, width);
}
template <class M, class T> __device__ __forceinline__ T __shfl_up_sync(M, T value, unsigned by, int width = warpSize) {
    return __shfl_up(value, by, width);
}
template <class M, class T> __device__ __forceinline__ T __shfl_down_sync(M, T value, unsigned by, int width = warpSize) {
    return __shfl_down(value, by, width);
}
template <class M, class T> __device__ __forceinline__ T __shfl_xor_sync(M, T value, int mask, int width = warpSize) {
    return __shfl_xor(value, mask, width);
}
template <class M> __device__ __forceinline__ unsigned long long __ballot_sync(M mask, int condition) {
    return __ballot(condition) & mask;
}
template <class M> __device__ __forceinline__ int __any_sync(M mask, int condition) { return __ballot_sync(mask, condition) != 0; }
template <class M> __device__ __forceinline__ int __all_sync(M mask, int condition) { return __ballot_sync(mask, !condition) == 0; }
__device__ __forceinline__ void __syncwarp(unsigned long long = ~0ull) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }

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

#include "math.h"

extern "C" __device__ int printf(const char *format, ...);
#define assert(condition) \
    ((condition) ? (void)0 : (printf("%s:%d: assertion `%s' failed.\n", __FILE__, __LINE__, #condition), __builtin_trap()))

#include "memory.h"
#include "half.h"
#include "bfloat16.h"
#include "complex.h"
#include "constants.h"
#include "groups.h"
