// Block 0 stores a value and sets a relaxed flag; block 1 waits for the flag and loads the value. Status 1 if it is not 7.
#include "api.h"

extern "C" __global__ void pass_on(unsigned *value, unsigned *flag, unsigned *out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *value = 7;
        __hip_atomic_store(flag, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    } else {
        while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0);
        *out = *value;
    }
}

int main() {
    unsigned *memory, found;
    MUST(hipMalloc((void **)&memory, 3 * 1024));
    MUST(hipMemset(memory, 0, 3 * 1024));
    pass_on<<<2, 64>>>(memory, memory + 256, memory + 512);
    MUST(hipMemcpy(&found, memory + 512, 4, hipMemcpyDeviceToHost));
    printf("%u\n", found);
    return found != 7;
}
