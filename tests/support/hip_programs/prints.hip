// What kernels and the host print by turns, and an assertion that fails.
#include "api.h"
extern "C" __device__ int printf(const char *format, ...);

__global__ void count(int round) {
    if (threadIdx.x % 64 == 1) printf("round %d: %s %d, thread %u, %.1f\n", round, "block", blockIdx.x, threadIdx.x, index() / 2.0);
}

__global__ void below(const int *x, int limit) {
    if (x[index()] >= limit) {
        printf("assertion failed: %d < %d\n", x[index()], limit);
        __builtin_trap();
    }
}

int main() {
    for (int round = 0; round < 3; round++) {
        printf("host before round %d\n", round);
        count<<<40, 128>>>(round);
        MUST(hipDeviceSynchronize());
    }
    int *x, host[64];
    for (int i = 0; i < 64; i++) host[i] = i;
    MUST(hipMalloc((void **)&x, sizeof host));
    MUST(hipMemcpy(x, host, sizeof host, hipMemcpyHostToDevice));
    below<<<1, 64>>>(x, 64);
    MUST(hipDeviceSynchronize());
    below<<<1, 64>>>(x, 63);
    EXPECT(hipErrorAssert, hipDeviceSynchronize());
    MUST(hipDeviceReset());
    printf("host at the end\n");
}
