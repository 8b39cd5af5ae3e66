// Sums arrays of all devices on each of them, times a number, in two stages, with flags in memory that all devices reach.
//
// Stage 1: each device sums its part of all inputs into its own buffer. Stage 2: each device collects the parts of all others. A
// macro of the form -DWORD=VALUE weakens a part of it.
#include "api.h"

#ifndef SCOPE
#define SCOPE __HIP_MEMORY_SCOPE_SYSTEM  // of the flags
#endif
#ifndef PUT
#define PUT __ATOMIC_RELEASE
#endif
#ifndef SEE
#define SEE __ATOMIC_ACQUIRE
#endif
#ifndef BEFORE
#define BEFORE  // a fence before the flags are set
#endif
#ifndef AFTER
#define AFTER  // a fence after they were read
#endif
#ifndef FLAGS
#define FLAGS 3  // hipDeviceMallocUncached; 0: coarse-grained
#endif
#ifndef DATA
#define DATA 0
#endif
#ifdef STORED  // cache bits of accesses to `partial` by buffer instructions, as quick-reduce kernels make them: 16 is sc1
#define RESOURCE(AT) __builtin_amdgcn_make_buffer_rsrc(AT, 0, 4 * PART, 0x27000)
#define STORE_PART(AT, PLACE, VALUE) __builtin_amdgcn_raw_buffer_store_b32(VALUE, RESOURCE(AT), 4 * (PLACE), 0, STORED)
#define LOAD_PART(AT, PLACE) (int)__builtin_amdgcn_raw_buffer_load_b32(RESOURCE(AT), 4 * (PLACE), 0, LOADED)
#else
#define STORE_PART(AT, PLACE, VALUE) AT[PLACE] = VALUE
#define LOAD_PART(AT, PLACE) AT[PLACE]
#endif

enum { MOST = 8, BLOCKS = 2, THREADS = 128, PART = BLOCKS * THREADS };

struct Ranks {
    int *input[MOST], *partial[MOST];
    unsigned *flags[MOST];  // of each device: rows by block, an entry for each other device
};

// Waits until all devices have come here with this number. Flag I of a device is set by device I.
template <int put, int see>
__device__ void meet(const Ranks &ranks, int rank, int count, unsigned number) {
    __syncthreads();
    if (threadIdx.x < (unsigned)count) {
        BEFORE;
        __hip_atomic_store(&ranks.flags[threadIdx.x][blockIdx.x * MOST + rank], number, put, SCOPE);
        while (__hip_atomic_load(&ranks.flags[rank][blockIdx.x * MOST + threadIdx.x], see, SCOPE) < number)
            __builtin_amdgcn_s_sleep(1);
        AFTER;
    }
    __syncthreads();
}

__global__ void all_reduce(Ranks ranks, int *result, int rank, int count, unsigned number) {
    int at = index();
    meet<__ATOMIC_RELAXED, __ATOMIC_RELAXED>(ranks, rank, count, number);  // inputs are of earlier kernels, as are the reads of `partial`
    int sum = 0;
    for (int i = 0; i < count; i++) sum += (int)number * ranks.input[i][rank * PART + at];
    STORE_PART(ranks.partial[rank], at, sum);
    meet<PUT, SEE>(ranks, rank, count, number + 1);
    for (int i = 0; i < count; i++) result[i * PART + at] = LOAD_PART(ranks.partial[i], at);
}

__global__ void fill(int *out, int rank) { out[index()] = (rank + 1) * (index() % 11 + 1); }

int main() {
    int count, wrong = 0;
    MUST(hipGetDeviceCount(&count));
    Ranks ranks;
    int *result[MOST];
    for (int i = 0; i < count; i++) {
        MUST(hipSetDevice(i));
        for (int other = 0; other < count; other++)
            if (other != i) MUST(hipDeviceEnablePeerAccess(other, 0));
        MUST(hipMalloc((void **)&ranks.input[i], 4 * PART * count));
        MUST(hipMalloc((void **)&result[i], 4 * PART * count));
        MUST(hipExtMallocWithFlags((void **)&ranks.partial[i], 4 * PART, DATA));
        MUST(hipExtMallocWithFlags((void **)&ranks.flags[i], 4 * MOST * BLOCKS, FLAGS));
        MUST(hipMemset(ranks.flags[i], 0, 4 * MOST * BLOCKS));
        fill<<<BLOCKS * count, THREADS>>>(ranks.input[i], i);
        MUST(hipDeviceSynchronize());
    }
    for (unsigned turn = 0; turn < 2; turn++)
        for (int i = 0; i < count; i++) {
            MUST(hipSetDevice(i));
            all_reduce<<<BLOCKS, THREADS>>>(ranks, result[i], i, count, 2 * turn + 1);
        }
    int *host = (int *)malloc(4 * PART * count);
    for (int i = 0; i < count; i++) {
        MUST(hipSetDevice(i));
        MUST(hipMemcpy(host, result[i], 4 * PART * count, hipMemcpyDeviceToHost));
        for (int at = 0; at < PART * count; at++) wrong += host[at] != 3 * count * (count + 1) / 2 * (at % 11 + 1);
        MUST(hipFree(ranks.input[i]));
        MUST(hipFree(ranks.partial[i]));
        MUST(hipFree(ranks.flags[i]));
        MUST(hipFree(result[i]));
    }
    free(host);
    printf(wrong ? "%d wrong\n" : "PASS\n", wrong);
    return wrong != 0;
}
