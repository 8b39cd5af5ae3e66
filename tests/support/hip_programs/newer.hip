// Calls that newer versions of HIP have, and calls that return no error.
#include "api.h"

__global__ void add(int *at, int value) { at[threadIdx.x] += value; }

int main() {
    CHECK(!strcmp(hipApiName(7), "unknown"));
    Channels made = hipCreateChannelDesc(8, 16, 0, 32, 2);
    CHECK(made.x == 8 && made.y == 16 && made.z == 0 && made.w == 32 && made.kind == 2);
    hipError_t (*allocate)(void **, size_t, unsigned) = nullptr;
    int status = 5;
    MUST(hipGetDriverEntryPoint("hipMallocManaged", (void **)&allocate, 0, &status));
    CHECK(status == 0);
    EXPECT(hipErrorInvalidValue, hipGetDriverEntryPoint("printf", (void **)&allocate, 0, &status));
    MUST(hipGetDriverEntryPoint("hipMallocManaged", (void **)&allocate, 0, &status));

    int *managed, preferred;
    MUST(allocate((void **)&managed, 4096, 1));
    memset(managed, 0, 4096);
    MUST(hipMemAdvise_v2(managed, 4096, 3, Place{1, 0}));
    MUST(hipMemRangeGetAttribute(&preferred, 4, 2, managed, 4096));
    CHECK(preferred == 0);
    MUST(hipMemAdvise_v2(managed, 4096, 3, Place{2, 77}));
    MUST(hipMemRangeGetAttribute(&preferred, 4, 2, managed, 4096));
    CHECK(preferred == -1);
    EXPECT(hipErrorInvalidDevice, hipMemAdvise_v2(managed, 4096, 3, Place{1, 9}));
    MUST(hipMemPrefetchAsync_v2(managed, 4096, Place{1, 0}, 0, nullptr));
    EXPECT(hipErrorInvalidValue, hipMemPrefetchAsync_v2(managed, 4096, Place{1, 0}, 1, nullptr));

    // The stream waits for the host's 3, then writes; the kernel runs between both.
    hipStream_t stream;
    MUST(hipStreamCreate(&stream));
    ValueCall wait[2] = {{1, managed + 512, 3, 1, {}}, {5, managed + 514, 1ull << 40 | 7, 0, {}}}, wrong = {6, managed, 0, 0, {}};
    MUST(hipStreamBatchMemOp(stream, 2, wait, 0));
    add<<<1, 64, 0, stream>>>(managed, 5);
    CHECK(managed[514] == 0 && managed[9] == 0);
    *(volatile int *)(managed + 512) = 3;
    MUST(hipStreamSynchronize(stream));
    CHECK(managed[514] == 7 && managed[515] == 256 && managed[9] == 5);
    EXPECT(hipErrorInvalidValue, hipStreamBatchMemOp(stream, 1, &wrong, 0));
    EXPECT(hipErrorInvalidValue, hipStreamBatchMemOp(stream, 0, wait, 0));

    int here[4] = {1, 2, 3, 4}, *device;
    MUST(hipMalloc((void **)&device, 4096));
    void *to[] = {device, device + 8, here + 2, nullptr}, *from[] = {here, managed, device, device};
    size_t bytes[] = {8, 32, 8, 8}, which[] = {0}, failed = 99;
    char attributes[64] = {};
    MUST(hipMemcpyBatchAsync(to, from, bytes, 3, attributes, which, 1, &failed, stream));
    MUST(hipStreamSynchronize(stream));
    CHECK(here[2] == 1 && here[3] == 2 && failed == 99);
    EXPECT(hipErrorInvalidValue, hipMemcpyBatchAsync(to, from, bytes, 4, attributes, which, 1, &failed, stream));
    CHECK(failed == 3);
    MUST(hipMemcpy(here, device + 8, 16, hipMemcpyDeviceToHost));
    CHECK(here[0] == 5 && here[3] == 5);

    // Attributes of streams: a priority (8) can only be read, how the host waits (3) is 1 to 4.
    enum { POLICY = 3, PRIORITY = 8 };
    hipStream_t urgent;
    int value, yields = 3, wrong_policy = 5;
    MUST(hipStreamCreateWithPriority(&urgent, 0, -1));
    MUST(hipStreamGetAttribute(urgent, PRIORITY, &value));
    CHECK(value == -1);
    MUST(hipStreamGetAttribute(urgent, POLICY, &value));
    CHECK(value == 1);
    MUST(hipStreamSetAttribute(urgent, POLICY, &yields));
    MUST(hipStreamCopyAttributes(stream, urgent));
    MUST(hipStreamGetAttribute(stream, POLICY, &value));
    CHECK(value == 3);
    MUST(hipStreamGetAttribute(stream, PRIORITY, &value));
    CHECK(value == 0);
    EXPECT(hipErrorInvalidValue, hipStreamSetAttribute(stream, POLICY, &wrong_policy));
    EXPECT(hipErrorInvalidValue, hipStreamSetAttribute(stream, PRIORITY, &value));
    EXPECT(hipErrorInvalidValue, hipStreamGetAttribute(stream, 1, &value));
    EXPECT(hipErrorInvalidValue, hipStreamGetAttribute(stream, POLICY, nullptr));
    MUST(hipStreamDestroy(urgent));

    MUST(hipStreamDestroy(stream));
    MUST(hipFree(device));
    MUST(hipFree(managed));
    printf("PASS\n");
}
