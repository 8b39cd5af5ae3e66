// Cooperative groups: a block, tiles of a wave, the lanes that are active.
#pragma once
namespace cooperative_groups {
class thread_block {
  public:
    __device__ __forceinline__ unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
    __device__ __forceinline__ unsigned num_threads() const { return size(); }
    __device__ __forceinline__ unsigned thread_rank() const {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ dim3 thread_index() const { return threadIdx; }
    __device__ __forceinline__ dim3 group_index() const { return blockIdx; }
    __device__ __forceinline__ dim3 group_dim() const { return blockDim; }
    __device__ __forceinline__ void sync() const { __syncthreads(); }
};
__device__ __forceinline__ thread_block this_thread_block() { return thread_block(); }

// All threads of a launch; `sync` needs a cooperative one.
extern "C" __device__ void __ockl_grid_sync();
class grid_group {
  public:
    __device__ __forceinline__ unsigned num_blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
    __device__ __forceinline__ unsigned block_rank() const {
        return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    __device__ __forceinline__ unsigned size() const { return num_blocks() * thread_block().size(); }
    __device__ __forceinline__ unsigned num_threads() const { return size(); }
    __device__ __forceinline__ unsigned thread_rank() const {
        return block_rank() * thread_block().size() + thread_block().thread_rank();
    }
    __device__ __forceinline__ dim3 group_dim() const { return gridDim; }
    __device__ __forceinline__ bool is_valid() const { return true; }
    __device__ __forceinline__ void sync() const { __ockl_grid_sync(); }
};
__device__ __forceinline__ grid_group this_grid() { return grid_group(); }

template <unsigned N, class Parent = thread_block> class thread_block_tile {
    static_assert(N <= warpSize && !(N & (N - 1)), "a tile has as many lanes as a power of two, of one wave");

  public:
    __device__ __forceinline__ unsigned size() const { return N; }
    __device__ __forceinline__ unsigned num_threads() const { return N; }
    __device__ __forceinline__ unsigned thread_rank() const { return thread_block().thread_rank() % N; }
    __device__ __forceinline__ unsigned meta_group_rank() const { return thread_block().thread_rank() / N; }
    __device__ __forceinline__ unsigned meta_group_size() const { return (thread_block().size() + N - 1) / N; }
    __device__ __forceinline__ void sync() const { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }
    template <class T> __device__ __forceinline__ T shfl(T value, int from) const { return __shfl(value, from, N); }
    template <class T> __device__ __forceinline__ T shfl_up(T value, unsigned by) const { return __shfl_up(value, by, N); }
    template <class T> __device__ __forceinline__ T shfl_down(T value, unsigned by) const { return __shfl_down(value, by, N); }
    template <class T> __device__ __forceinline__ T shfl_xor(T value, unsigned mask) const { return __shfl_xor(value, mask, N); }
    __device__ __forceinline__ unsigned long long ballot(int condition) const {
        unsigned long long all = N == 64 ? ~0ull : (1ull << N % 64) - 1;
        return __ballot(condition) >> (__lane_id() & ~(N - 1)) & all;
    }
    __device__ __forceinline__ int any(int condition) const { return ballot(condition) != 0; }
    __device__ __forceinline__ int all(int condition) const { return ballot(!condition) == 0; }
};
template <unsigned N, class Parent> __device__ __forceinline__ thread_block_tile<N, Parent> tiled_partition(const Parent &) {
    return thread_block_tile<N, Parent>();
}

class coalesced_group {
    unsigned long long lanes;

  public:
    __device__ __forceinline__ coalesced_group() : lanes(__ballot(1)) {}
    __device__ __forceinline__ unsigned size() const { return __popcll(lanes); }
    __device__ __forceinline__ unsigned num_threads() const { return size(); }
    __device__ __forceinline__ unsigned thread_rank() const { return __popcll(lanes & ((1ull << __lane_id()) - 1)); }
    __device__ __forceinline__ void sync() const { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }
    template <class T> __device__ __forceinline__ T shfl(T value, int from) const {
        return __shfl(value, __fns64(lanes, 0, from % (int)size() + 1));
    }
    template <class T> __device__ __forceinline__ T shfl_up(T value, unsigned by) const {
        return __shfl(value, by > thread_rank() ? __lane_id() : __fns64(lanes, 0, thread_rank() - by + 1));
    }
    template <class T> __device__ __forceinline__ T shfl_down(T value, unsigned by) const {
        return __shfl(value, thread_rank() + by < size() ? __fns64(lanes, 0, thread_rank() + by + 1) : __lane_id());
    }
    __device__ __forceinline__ unsigned long long ballot(int condition) const {
        unsigned long long taken = __ballot(condition), packed = 0;
        for (unsigned rank = 0; rank < size(); ++rank) packed |= (taken >> __fns64(lanes, 0, rank + 1) & 1) << rank;
        return packed;
    }
    __device__ __forceinline__ int any(int condition) const { return ballot(condition) != 0; }
    __device__ __forceinline__ int all(int condition) const { return ballot(!condition) == 0; }
};
__device__ __forceinline__ coalesced_group coalesced_threads() { return coalesced_group(); }
template <class Group> __device__ __forceinline__ void sync(const Group &group) { group.sync(); }
}  // namespace cooperative_groups
