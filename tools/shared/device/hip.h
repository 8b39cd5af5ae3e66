// What hiprtc's programs find without including anything: the words of HIP's device language, by clang's builtins. The files beside
// this one are its parts: vectors, integers, atomics, conversions, math, memory, half, bfloat16, complex,
// constants, groups, textures.
#pragma once
#pragma clang system_header  // options of the program cause no warnings here
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define SIMGPU_BOUNDS(most) __attribute__((amdgpu_flat_work_group_size(1, most)))
#define SIMGPU_BOUNDS2(most, waves) SIMGPU_BOUNDS(most) __attribute__((amdgpu_waves_per_eu(waves)))
#define SIMGPU_THIRD(a, b, name, ...) name
#define __launch_bounds__(...) SIMGPU_THIRD(__VA_ARGS__, SIMGPU_BOUNDS2, SIMGPU_BOUNDS, )(__VA_ARGS__)
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define NULL __null
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
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static __device__ constexpr int warpSize = 64;

struct dim3 {
    unsigned x, y, z;
    __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#define SIMGPU_INDEX(TYPE, X, Y, Z)                                     \
    struct TYPE {                                                       \
        __declspec(property(get = get_x)) unsigned x;                   \
        __declspec(property(get = get_y)) unsigned y;                   \
        __declspec(property(get = get_z)) unsigned z;                   \
        __device__ __forceinline__ unsigned get_x() const { return X; } \
        __device__ __forceinline__ unsigned get_y() const { return Y; } \
        __device__ __forceinline__ unsigned get_z() const { return Z; } \
        __device__ __forceinline__ operator dim3() const { return {X, Y, Z}; } \
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
extern "C" __device__ int __ockl_wgred_add_i32(int), __ockl_wgred_and_i32(int), __ockl_wgred_or_i32(int);
__device__ __forceinline__ int __syncthreads_count(int condition) { return __ockl_wgred_add_i32(!!condition); }
__device__ __forceinline__ int __syncthreads_and(int condition) { return __ockl_wgred_and_i32(!!condition); }
__device__ __forceinline__ int __syncthreads_or(int condition) { return __ockl_wgred_or_i32(!!condition); }
__device__ __forceinline__ void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
__device__ __forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ __forceinline__ void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }

#include "integers.h"
#include "atomics.h"

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
__device__ __forceinline__ unsigned long long __lanemask_lt() { return ((1ull << __lane_id()) - 1) & __activemask(); }
__device__ __forceinline__ unsigned long long __lanemask_eq() { return 1ull << __lane_id(); }
__device__ __forceinline__ unsigned long long __lanemask_gt() { return -2ull << __lane_id() & __activemask(); }
template <class T> __device__ __forceinline__ T __simgpu_of_first(T value) {
    int words[(sizeof(T) + 3) / 4];
    __builtin_memcpy(words, &value, sizeof value);
    for (int &word : words) word = __builtin_amdgcn_readfirstlane(word);
    __builtin_memcpy(&value, words, sizeof value);
    return value;
}
template <class T> __device__ __forceinline__ unsigned long long __match_any(T value) {
    unsigned long long lanes = 0;
    while (__any(!lanes))
        if (!lanes && value == __simgpu_of_first(value)) lanes = __activemask();
    return lanes;
}
template <class T> __device__ __forceinline__ unsigned long long __match_all(T value, int *same) {
    *same = __all(value == __simgpu_of_first(value));
    return *same ? __activemask() : 0;
}
#define __hip_ds_bpermute(index, value) (unsigned)__builtin_amdgcn_ds_bpermute(index, value)
#define __hip_ds_permute(index, value) (unsigned)__builtin_amdgcn_ds_permute(index, value)
#define __hip_ds_bpermutef(index, value) __int_as_float(__builtin_amdgcn_ds_bpermute(index, __float_as_int(value)))
#define __hip_ds_permutef(index, value) __int_as_float(__builtin_amdgcn_ds_permute(index, __float_as_int(value)))
#define __hip_ds_swizzle(value, pattern) (unsigned)__builtin_amdgcn_ds_swizzle(value, pattern)
#define __hip_ds_swizzlef(value, pattern) __int_as_float(__builtin_amdgcn_ds_swizzle(__float_as_int(value), pattern))
#define __hip_move_dpp(value, how, rows, banks, bound) __builtin_amdgcn_mov_dpp(value, how, rows, banks, bound)
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
template <class M, class T> __device__ __forceinline__ unsigned long long __match_any_sync(M mask, T value) {
    return __match_any(value) & mask;
}
template <class M, class T> __device__ __forceinline__ unsigned long long __match_all_sync(M mask, T value, int *same) {
    return __match_all(value, same) & mask;
}
__device__ __forceinline__ void __syncwarp(unsigned long long = ~0ull) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }

#include "conversions.h"
#include "math.h"

__device__ __forceinline__ long long clock64() { return __builtin_readcyclecounter(); }
__device__ __forceinline__ long long wall_clock64() { return __builtin_readsteadycounter(); }
__device__ __forceinline__ long long clock() { return clock64(); }
__device__ __forceinline__ long long __clock() { return clock64(); }
__device__ __forceinline__ long long __clock64() { return clock64(); }

extern "C" __device__ int printf(const char *format, ...);
__device__ __forceinline__ void __trap() { __builtin_trap(); }
__device__ __forceinline__ void abort() { __builtin_trap(); }
#define assert(condition) \
    ((condition) ? (void)0 : (printf("%s:%d: assertion `%s' failed.\n", __FILE__, __LINE__, #condition), __builtin_trap()))

#include "memory.h"
#include "half.h"
#include "bfloat16.h"
#include "complex.h"
#include "constants.h"
#include "groups.h"
#include "textures.h"
#if !__HIPCC_RTC__
#include "standard/math.h" // hipcc includes <cmath> in every source, hiprtc does not (clang's __clang_hip_runtime_wrapper.h)
#endif
