// Blocks that wait for each other: every one must run before any can end.
#include "api.h"

__device__ void meet(int *arrived, int blocks) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __hip_atomic_fetch_add(arrived, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
        while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) % blocks) {
        }
    }
    __syncthreads();
}

__global__ void rotate(int *values, int *arrived, int blocks) {
    int next = values[(blockIdx.x + 1) % blocks];
    meet(arrived, blocks);
    if (threadIdx.x == 0) values[blockIdx.x] = next;
}

int main() {
    const int blocks = 48;
    static int values[blocks];
    for (int i = 0; i < blocks; i++) values[i] = i;
    int *held, *arrived, count = blocks;
    MUST(hipMalloc((void **)&held, sizeof values));
    MUST(hipMalloc((void **)&arrived, sizeof(int)));
    MUST(hipMemset(arrived, 0, sizeof(int)));
    MUST(hipMemcpy(held, values, sizeof values, hipMemcpyHostToDevice));
    void *arguments[] = {&held, &arrived, &count};
    MUST(hipLaunchCooperativeKernel((const void *)rotate, dim3(blocks), dim3(128), arguments, 0, 0));
    MUST(hipMemcpy(values, held, sizeof values, hipMemcpyDeviceToHost));
    for (int i = 0; i < blocks; i++) CHECK(values[i] == (i + 1) % blocks);
    dim3 many(1 << 20);
    EXPECT(hipErrorCooperativeLaunchTooLarge, hipLaunchCooperativeKernel((const void *)rotate, many, dim3(128), arguments, 0, 0));
    MUST(hipFree(held));
    MUST(hipFree(arrived));
    printf("PASS\n");
}
