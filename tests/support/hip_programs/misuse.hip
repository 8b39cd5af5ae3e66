// Calls that are wrong, one a line: the program goes on after each.
#include "api.h"

__global__ void fine(int *out) { out[threadIdx.x] = 1; }

int main() {
    int *a, *b, *lost, host[64];
    hipStream_t stream;
    hipEvent_t event;
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMalloc((void **)&b, 256));
    MUST(hipMalloc((void **)&lost, 4096));
    MUST(hipMemset(a, 0, 256));
    EXPECT(hipErrorInvalidValue, hipMemcpy(host, a, 260, hipMemcpyDeviceToHost));
    EXPECT(hipErrorInvalidValue, hipMemset(a + 1, 0, 256));
    MUST(hipFree(b));
    EXPECT(hipErrorInvalidValue, hipFree(b));
    EXPECT(hipErrorInvalidValue, hipMemcpy(host, b, 4, hipMemcpyDeviceToHost));
    EXPECT(hipErrorInvalidValue, hipFree(a + 2));
    EXPECT(hipErrorInvalidValue, hipMemcpy((void *)64, a, 4, hipMemcpyDeviceToHost));
    MUST(hipStreamCreate(&stream));
    MUST(hipStreamDestroy(stream));
    EXPECT(hipErrorContextIsDestroyed, hipMemsetAsync(a, 0, 4, stream));
    MUST(hipEventCreate(&event));
    MUST(hipEventDestroy(event));
    EXPECT(hipErrorInvalidHandle, hipEventRecord(event, nullptr));
    fine<<<1, 4096>>>(a);
    MUST(hipFree(a));
    printf("ended\n");
}
