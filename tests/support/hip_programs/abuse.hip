// What no program should do: a HIP error for each, and the program goes on.
#include "api.h"

__global__ void fine(int *out) { out[threadIdx.x] = 1; }
__global__ void forever(volatile int *out) {
    while (out[threadIdx.x] != -1) {}
}

static hipError_t seen;
static void waits(void *) { seen = hipDeviceSynchronize(); }

int main() {
    int *a, host[64];
    char local[256] = {0};
    const size_t most = ~(size_t)0;
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMemset(a, 0, 256));

    // Handles that are none.
    void *wild[] = {(void *)0x1234, local, host, (void *)most, a, (void *)0x7fffffff0000};
    for (void *each : wild) {
        EXPECT(hipErrorContextIsDestroyed, hipStreamSynchronize((hipStream_t)each));
        EXPECT(hipErrorContextIsDestroyed, hipStreamDestroy((hipStream_t)each));
        EXPECT(hipErrorInvalidHandle, hipEventRecord((hipEvent_t)each, nullptr));
        EXPECT(hipErrorContextIsDestroyed, hipEventDestroy((hipEvent_t)each));
        EXPECT(hipErrorInvalidHandle, hipModuleUnload((hipModule_t)each));
        EXPECT(hipErrorInvalidHandle, hipModuleLaunchKernel((hipFunction_t)each, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr));
        EXPECT(hipErrorInvalidValue, hipGraphLaunch((hipGraphExec_t)each, nullptr));
        EXPECT(hipErrorInvalidValue, hipGraphDestroy((hipGraph_t)each));
        if (each != a) EXPECT(hipErrorInvalidValue, hipFree(each));
        if (each != a) EXPECT(hipErrorInvalidValue, hipHostFree(each));
    }

    // Sizes and pointers that are none.
    EXPECT(hipErrorInvalidValue, hipMemcpy(a, host, most, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipMemset(a, 0, most));
    EXPECT(hipErrorInvalidValue, hipMemcpy2D(a, most / 2, host, most / 2, 4, 9, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipMemcpy((void *)8, host, 4, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipMemcpy((char *)a + (1ull << 40), host, 4, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipMalloc(nullptr, 4));
    EXPECT(hipErrorOutOfMemory, hipMalloc((void **)&wild[0], most));
    EXPECT(hipErrorInvalidValue, hipHostRegister((void *)8, 4096, 0));
    EXPECT(hipErrorInvalidImage, hipModuleLoadData((hipModule_t *)&wild[0], "\177ELF, but nothing of it is behind these words, is it?   "
                                                                           "and some more of them, so that a header fits"));

    // A callback that waits for itself.
    MUST(hipLaunchHostFunc(nullptr, waits, nullptr));
    MUST(hipDeviceSynchronize());
    CHECK(seen == hipErrorNotSupported);

    // Kernels that never end, and more blocks than anyone waits for.
    forever<<<1, 64>>>(a);
    EXPECT(702, hipDeviceSynchronize());
    MUST(hipDeviceReset());
    MUST(hipMalloc((void **)&a, 256));
    fine<<<(1u << 31) - 1, 1>>>(a);
    EXPECT(702, hipDeviceSynchronize());
    EXPECT(702, hipMemset(a, 0, 4));
    MUST(hipDeviceReset());
    MUST(hipMalloc((void **)&a, 256));
    fine<<<1, 64>>>(a);
    MUST(hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    CHECK(host[63] == 1);
    printf("PASS\n");
    fine<<<1000, 64>>>(a);  // nobody waits for it
}
