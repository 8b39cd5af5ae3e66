// A kernel that faults among three streams: the program hears of it and goes on.
#include "api.h"

__global__ void fine(int *out) { out[index()] = 1; }
__global__ void wild(int *out) { out[index() + 1000000] = 1; }

int main() {
    int *a, *b, host[64];
    hipStream_t streams[3];
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMalloc((void **)&b, 1024));
    for (auto &stream : streams) MUST(hipStreamCreate(&stream));
    for (int i = 0; i < 10; i++) fine<<<1, 64, 0, streams[i % 3]>>>(a);
    for (int i = 0; i < 100; i++) wild<<<1, 64, 0, streams[1]>>>(b);  // what is queued behind the first is not run
    for (int i = 0; i < 10; i++) fine<<<1, 64, 0, streams[i % 3]>>>(a);
    EXPECT(hipErrorIllegalAddress, hipDeviceSynchronize());
    EXPECT(hipErrorIllegalAddress, hipStreamSynchronize(streams[0]));
    EXPECT(hipErrorIllegalAddress, hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    fine<<<1, 64>>>(a);
    EXPECT(hipErrorIllegalAddress, hipGetLastError());
    for (auto &stream : streams) MUST(hipStreamDestroy(stream));
    MUST(hipFree(a));
    printf("ended\n");
}
