// What hiprtc's programs find without including anything: the words of HIP's device language, by clang's builtins.
#pragma once
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
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

__device__ __forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
__device__ __forceinline__ double sqrt(double x) { return __builtin_sqrt(x); }
__device__ __forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
__device__ __forceinline__ double fabs(double x) { return __builtin_fabs(x); }
__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
__device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
__device__ __forceinline__ float floorf(float x) { return __builtin_floorf(x); }
__device__ __forceinline__ float ceilf(float x) { return __builtin_ceilf(x); }
__device__ __forceinline__ float expf(float x) { return __builtin_expf(x); }
__device__ __forceinline__ float logf(float x) { return __builtin_logf(x); }
__device__ __forceinline__ int min(int x, int y) { return x < y ? x : y; }
__device__ __forceinline__ int max(int x, int y) { return x > y ? x : y; }
