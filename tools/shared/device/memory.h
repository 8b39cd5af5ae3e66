// Memory: that of kernels' malloc, loads with a hint for the cache, and what C has of strings.
#pragma once
extern "C" __device__ unsigned long __ockl_dm_alloc(unsigned long);
extern "C" __device__ void __ockl_dm_dealloc(unsigned long);
__device__ __forceinline__ void *malloc(size_t bytes) { return (void *)__ockl_dm_alloc(bytes); }
__device__ __forceinline__ void free(void *pointer) { __ockl_dm_dealloc((unsigned long)pointer); }
#define SIMGPU_LOAD(NAME) template <class T> __device__ __forceinline__ T NAME(const T *at) { return *at; }
SIMGPU_LOAD(__ldg) SIMGPU_LOAD(__ldca) SIMGPU_LOAD(__ldcg) SIMGPU_LOAD(__ldcs)
#define memcpy __builtin_memcpy
#define memset __builtin_memset
