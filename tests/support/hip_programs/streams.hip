// Streams run beside the host and after each other as HIP's rules say.
#include "api.h"

__global__ void spin(int *out, int rounds) {
    int value = threadIdx.x;
    for (int i = 0; i < rounds; i++) value = value * 1664525 + 1013904223;
    out[index()] = value;
}
__global__ void set(int *out, int value) { out[threadIdx.x] = value; }
__global__ void add(int *out, int value) { out[threadIdx.x] += value; }

static int called, status_seen = -1;
static void note(void *data) { called += *(int *)data; }
static void told(hipStream_t, hipError_t status, void *) { status_seen = status; }

int main() {
    int *a, *b, host[64], one = 1;
    hipStream_t first, second, free_one;
    hipEvent_t begun, ended;
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMalloc((void **)&b, 64 * 256));
    MUST(hipStreamCreate(&first));
    MUST(hipStreamCreate(&second));
    MUST(hipStreamCreateWithFlags(&free_one, hipStreamNonBlocking));
    MUST(hipEventCreate(&begun));
    MUST(hipEventCreate(&ended));
    MUST(hipEventQuery(begun));  // never recorded: complete
    MUST(hipMemset(a, 0, 256));
    MUST(hipDeviceSynchronize());

    // A launch returns before its kernel ends.
    spin<<<64, 64, 0, first>>>(b, 200000);
    EXPECT(hipErrorNotReady, hipStreamQuery(first));
    MUST(hipEventRecord(ended, first));
    EXPECT(hipErrorNotReady, hipEventQuery(ended));
    float time;
    MUST(hipEventRecord(begun, second));
    MUST(hipEventSynchronize(begun));  // another stream does not wait
    EXPECT(hipErrorNotReady, hipEventElapsedTime(&time, begun, ended));
    MUST(hipEventSynchronize(ended));
    MUST(hipStreamQuery(first));
    MUST(hipEventElapsedTime(&time, begun, ended));
    CHECK(time >= 0);

    // hipStreamWaitEvent: second follows first.
    spin<<<64, 64, 0, first>>>(b, 100000);
    set<<<1, 64, 0, first>>>(a, 5);
    MUST(hipEventRecord(ended, first));
    MUST(hipStreamWaitEvent(second, ended, 0));
    add<<<1, 64, 0, second>>>(a, 2);
    MUST(hipLaunchHostFunc(second, note, &one));
    MUST(hipStreamAddCallback(second, told, nullptr, 0));
    MUST(hipStreamSynchronize(second));
    CHECK(called == 1 && status_seen == hipSuccess);
    MUST(hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    CHECK(host[0] == 7 && host[63] == 7);

    // The null stream waits for those that block with it, and they for it.
    spin<<<64, 64, 0, first>>>(b, 100000);
    set<<<1, 64, 0, first>>>(a, 1);
    add<<<1, 64>>>(a, 10);
    add<<<1, 64, 0, second>>>(a, 100);
    MUST(hipStreamSynchronize(second));
    MUST(hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    CHECK(host[17] == 111);

    // A stream that does not block goes its own way, and so does the thread's own.
    spin<<<64, 64, 0, first>>>(b, 200000);
    MUST(hipMemsetAsync(a, 0, 256, free_one));
    MUST(hipStreamSynchronize(free_one));
    add<<<1, 64, 0, free_one>>>(a, 3);
    MUST(hipStreamSynchronize(free_one));
    add<<<1, 64, 0, hipStreamPerThread>>>(a, 4);
    MUST(hipStreamSynchronize(hipStreamPerThread));
    MUST(hipMemcpyAsync(host, a, 256, hipMemcpyDeviceToHost, free_one));
    MUST(hipStreamSynchronize(free_one));
    CHECK(host[9] == 7);

    MUST(hipDeviceSynchronize());
    MUST(hipEventDestroy(begun));
    MUST(hipEventDestroy(ended));
    MUST(hipStreamDestroy(first));
    MUST(hipStreamDestroy(second));
    MUST(hipStreamDestroy(free_one));
    MUST(hipFree(a));
    MUST(hipFree(b));
    printf("PASS\n");
}
