// Block 0 stores a value and sets a flag; block 1 waits for the flag and loads the value: each wrong in its own way.
#include "api.h"

typedef unsigned uint;
#define KERNEL extern "C" __global__ void
#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define BLOCK __HIP_MEMORY_SCOPE_WORKGROUP

// The flag is relaxed.
KERNEL relaxed(uint *value, uint *flag, uint *out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *value = 7;
        __hip_atomic_store(flag, 1u, __ATOMIC_RELAXED, AGENT);
    } else {
        while (__hip_atomic_load(flag, __ATOMIC_RELAXED, AGENT) == 0);
        *out = *value;
    }
}

// Release and acquire reach no further than the workgroup.
KERNEL narrow(uint *value, uint *flag, uint *out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *value = 7;
        __hip_atomic_store(flag, 1u, __ATOMIC_RELEASE, BLOCK);
    } else {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, BLOCK) == 0);
        *out = *value;
    }
}

// Published by a relaxed compare-and-swap and polled as volatile, as HeCBench's issue 292 has it: "works for gfx90a".
KERNEL published(uint *value, uint *flag, uint *out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *value = 7;
        uint none = 0;
        __hip_atomic_compare_exchange_strong(flag, &none, 1u, __ATOMIC_RELAXED, __ATOMIC_RELAXED, AGENT);
    } else {
        while (*(volatile uint *)flag == 0);
        *out = *value;
    }
}

// Only the acquire is missing.
KERNEL unacquired(uint *value, uint *flag, uint *out) {
    if (blockIdx.x == 0) {
        value[threadIdx.x] = 7;
        __syncthreads();
        if (threadIdx.x == 0) __hip_atomic_store(flag, 1u, __ATOMIC_RELEASE, AGENT);
    } else {
        if (threadIdx.x == 0) while (__hip_atomic_load(flag, __ATOMIC_RELAXED, AGENT) == 0);
        __syncthreads();
        out[threadIdx.x] = value[threadIdx.x];
    }
}

// The flag is set before the value that it announces.
KERNEL early(uint *value, uint *flag, uint *out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        __hip_atomic_store(flag, 1u, __ATOMIC_RELEASE, AGENT);
        *value = 7;
    } else {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) == 0);
        *out = *value;
    }
}

// All count themselves, which orders nothing that comes after it.
KERNEL counted(uint *value, uint *count, uint *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = __hip_atomic_fetch_add(count, 1u, __ATOMIC_RELAXED, AGENT);
    __syncthreads();
    value[threadIdx.x] = blockIdx.x + threadIdx.x;
}

int main() {
    typedef void (*Kernel)(uint *, uint *, uint *);
    Kernel all[] = {relaxed, narrow, published, unacquired, early, counted};
    for (Kernel kernel : all) {
        uint *memory;
        MUST(hipMalloc((void **)&memory, 3 * 1024));
        MUST(hipMemset(memory, 0, 3 * 1024));
        kernel<<<2, 64>>>(memory, memory + 256, memory + 512);
        MUST(hipDeviceSynchronize());
        MUST(hipFree(memory));
    }
}
