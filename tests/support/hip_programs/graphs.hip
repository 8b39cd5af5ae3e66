// Work that is captured once and launched often.
#include "api.h"

extern "C" hipError_t hipThreadExchangeStreamCaptureMode(int *mode);

__global__ void add(int *out, int value) { out[threadIdx.x] += value; }
static int calls;
static void called(void *) { calls++; }

int main() {
    int *a, *b, host[64];
    hipStream_t one, two;
    hipEvent_t fork_, join;
    hipGraph_t graph;
    hipGraphExec_t exec;
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMalloc((void **)&b, 256));
    MUST(hipMemset(a, 0, 256));
    MUST(hipMemset(b, 0, 256));
    MUST(hipStreamCreate(&one));
    MUST(hipStreamCreate(&two));
    MUST(hipEventCreate(&fork_));
    MUST(hipEventCreate(&join));

    MUST(hipStreamBeginCapture(one, 0));
    add<<<1, 64, 0, one>>>(a, 1);
    MUST(hipEventRecord(fork_, one));
    MUST(hipStreamWaitEvent(two, fork_, 0));
    add<<<1, 64, 0, two>>>(b, 10);
    MUST(hipLaunchHostFunc(two, called, nullptr));
    MUST(hipEventRecord(join, two));
    MUST(hipStreamWaitEvent(one, join, 0));
    MUST(hipMemcpyAsync(b, a, 128, hipMemcpyDeviceToDevice, one));
    MUST(hipStreamEndCapture(one, &graph));
    MUST(hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    CHECK(host[0] == 0);  // nothing ran yet
    size_t nodes = 0;
    MUST(hipGraphGetNodes(graph, nullptr, &nodes));
    CHECK(nodes == 4);
    MUST(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for (int i = 0; i < 5; i++) MUST(hipGraphLaunch(exec, two));
    MUST(hipStreamSynchronize(two));
    MUST(hipMemcpy(host, a, 256, hipMemcpyDeviceToHost));
    CHECK(host[0] == 5 && host[63] == 5 && calls == 5);
    MUST(hipMemcpy(host, b, 256, hipMemcpyDeviceToHost));
    CHECK(host[0] == 5 && host[63] == 50);

    // What cannot be captured.
    MUST(hipStreamBeginCapture(one, 0));
    EXPECT(900, hipStreamSynchronize(one));
    EXPECT(901, hipStreamEndCapture(one, &graph));
    EXPECT(401, hipStreamEndCapture(one, &graph));
    MUST(hipStreamBeginCapture(one, 0));
    add<<<1, 64, 0, one>>>(a, 1);
    MUST(hipEventRecord(fork_, one));
    MUST(hipStreamWaitEvent(two, fork_, 0));
    add<<<1, 64, 0, two>>>(a, 1);
    EXPECT(904, hipStreamEndCapture(one, &graph));
    MUST(hipGetLastError() == 904 ? hipSuccess : hipErrorInvalidValue);
    int *c, mode = 2;  // hipStreamCaptureModeRelaxed
    MUST(hipStreamBeginCapture(one, 0));
    EXPECT(900, hipMalloc((void **)&c, 256));
    EXPECT(901, hipStreamEndCapture(one, &graph));
    MUST(hipStreamBeginCapture(one, 0));
    EXPECT(900, hipFree(a));
    EXPECT(901, hipStreamEndCapture(one, &graph));
    MUST(hipStreamBeginCapture(one, 0));
    EXPECT(900, hipStreamSynchronize(two));
    EXPECT(901, hipStreamEndCapture(one, &graph));
    MUST(hipStreamBeginCapture(one, 0));
    MUST(hipThreadExchangeStreamCaptureMode(&mode));
    MUST(hipMalloc((void **)&c, 256));
    MUST(hipFree(c));
    MUST(hipThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == 2);
    MUST(hipStreamEndCapture(one, &graph));
    MUST(hipStreamBeginCapture(two, 1));  // of the thread alone
    MUST(hipStreamDestroy(two));
    MUST(hipMalloc((void **)&c, 256));
    MUST(hipFree(c));
    MUST(hipStreamCreate(&two));

    MUST(hipGraphExecDestroy(exec));
    EXPECT(hipErrorInvalidValue, hipGraphLaunch(exec, one));
    MUST(hipStreamDestroy(one));
    MUST(hipStreamDestroy(two));
    MUST(hipEventDestroy(fork_));
    MUST(hipEventDestroy(join));
    MUST(hipFree(a));
    MUST(hipFree(b));
    printf("PASS\n");
}
