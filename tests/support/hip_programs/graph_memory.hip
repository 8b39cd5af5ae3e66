// Memory that graphs allocate: captured and added, launched again and again, freed inside and outside; objects that graphs keep.
#include "api.h"

struct AllocateParameters {
    int type, handles, location, device;
    char rest[72];
    void *access;
    size_t accesses, bytes;
    void *pointer;
};
struct NodeParameters {
    int type, reserved[3];
    union {
        long long room[29];
        hipKernelNodeParams kernel;
        AllocateParameters allocate;
        void *pointer;
    };
    long long last;
};
struct DriverFill {  // HIP_MEMSET_NODE_PARAMS
    void *to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
typedef struct hipUserObject *hipUserObject_t;
extern "C" {
hipError_t hipMallocAsync(void **, size_t, hipStream_t);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipGraphAddNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, NodeParameters *);
hipError_t hipGraphAddMemAllocNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, AllocateParameters *);
hipError_t hipGraphAddMemFreeNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, void *);
hipError_t hipDrvGraphAddMemsetNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const DriverFill *, void *);
hipError_t hipDeviceGetGraphMemAttribute(int, int, size_t *);
hipError_t hipDeviceSetGraphMemAttribute(int, int, size_t *);
hipError_t hipDeviceGraphMemTrim(int);
hipError_t hipUserObjectCreate(hipUserObject_t *, void *, void (*)(void *), unsigned, unsigned);
hipError_t hipUserObjectRelease(hipUserObject_t, unsigned);
hipError_t hipUserObjectRetain(hipUserObject_t, unsigned);
hipError_t hipGraphReleaseUserObject(hipGraph_t, hipUserObject_t, unsigned);
hipError_t hipGraphRetainUserObject(hipGraph_t, hipUserObject_t, unsigned, unsigned);
}

__global__ void count(int *out, int from) { out[threadIdx.x] = from + (int)threadIdx.x; }
__global__ void add(int *out, const int *in) { out[threadIdx.x] += in[threadIdx.x]; }
static void end(void *data) { ++*(int *)data; }

int main() {
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    int *sum, *part, host[64], ended = 0;
    MUST(hipStreamCreate(&stream));
    MUST(hipMalloc((void **)&sum, 256));
    MUST(hipMemset(sum, 0, 256));

    // Captured: allocated and freed in each launch.
    MUST(hipStreamBeginCapture(stream, 0));
    MUST(hipMallocAsync((void **)&part, 256, stream));
    count<<<1, 64, 0, stream>>>(part, 3);
    add<<<1, 64, 0, stream>>>(sum, part);
    MUST(hipFreeAsync(part, stream));
    MUST(hipStreamEndCapture(stream, &graph));
    MUST(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    MUST(hipGraphDestroy(graph));
    for (int i = 0; i < 3; i++) MUST(hipGraphLaunch(exec, stream));
    MUST(hipStreamSynchronize(stream));
    MUST(hipMemcpy(host, sum, 256, hipMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) CHECK(host[i] == 3 * (3 + i));
    MUST(hipGraphExecDestroy(exec));
    EXPECT(hipErrorInvalidValue, hipMemset(part, 0, 4));  // given back with the graph

    // Added, by calls for nodes of any kind; freed by the program, and taken anew by the next launch.
    hipGraphNode_t allocation, kernel, freeing;
    int from = 100;
    MUST(hipGraphCreate(&graph, 0));
    NodeParameters wanted = {};
    wanted.type = 10, wanted.allocate.type = 1, wanted.allocate.location = 1, wanted.allocate.bytes = 256;
    MUST(hipGraphAddNode(&allocation, graph, nullptr, 0, &wanted));
    part = (int *)wanted.allocate.pointer;
    void *arguments[] = {&part, &from};
    NodeParameters launch = {};
    launch.type = 0;
    launch.kernel.blockDim = dim3(64), launch.kernel.gridDim = dim3(1);
    launch.kernel.func = (void *)count, launch.kernel.kernelParams = arguments;
    MUST(hipGraphAddNode(&kernel, graph, &allocation, 1, &launch));
    hipUserObject_t object;
    MUST(hipUserObjectCreate(&object, &ended, end, 1, 1));
    MUST(hipGraphRetainUserObject(graph, object, 1, 1));
    MUST(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    MUST(hipGraphDestroy(graph));
    CHECK(ended == 0);
    for (int i = 0; i < 2; i++) {
        MUST(hipGraphLaunch(exec, stream));
        MUST(hipMemcpyAsync(host, part, 256, hipMemcpyDeviceToHost, stream));
        MUST(hipStreamSynchronize(stream));
        CHECK(host[0] == 100 && host[63] == 163);
        if (i) MUST(hipFreeAsync(part, stream));
        else MUST(hipFree(part));
    }
    MUST(hipGraphExecDestroy(exec));
    CHECK(ended == 1);
    // As HIP answers of one that is gone.
    MUST(hipUserObjectRelease(object, 1));
    MUST(hipUserObjectRetain(object, 2));
    MUST(hipGraphCreate(&graph, 0));
    MUST(hipGraphRetainUserObject(graph, object, 8, 1));
    MUST(hipGraphReleaseUserObject(graph, object, 1));
    EXPECT(hipErrorInvalidValue, hipGraphRetainUserObject(graph, object, 0, 1));
    MUST(hipGraphDestroy(graph));
    CHECK(ended == 1);

    // Freed by another graph.
    hipGraph_t other;
    hipGraphExec_t second;
    AllocateParameters more = {1, 0, 1, 0, {}, nullptr, 0, 256, nullptr}, bad = more;
    MUST(hipGraphCreate(&graph, 0));
    MUST(hipGraphCreate(&other, 0));
    size_t before, used, most;
    MUST(hipStreamSynchronize(stream));
    MUST(hipDeviceGetGraphMemAttribute(0, 0, &before));
    MUST(hipGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &more));
    MUST(hipDeviceGetGraphMemAttribute(0, 0, &used));
    MUST(hipDeviceGetGraphMemAttribute(0, 1, &most));
    CHECK(used == before + more.bytes && most >= used);
    EXPECT(hipErrorInvalidDevice, hipDeviceGetGraphMemAttribute(9, 0, &used));
    EXPECT(hipErrorInvalidValue, hipDeviceGetGraphMemAttribute(0, 4, &used));
    EXPECT(hipErrorInvalidValue, hipDeviceSetGraphMemAttribute(0, 0, &before));
    bad.device = 9;
    EXPECT(hipErrorInvalidValue, hipGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &bad));
    EXPECT(hipErrorInvalidValue, hipGraphAddMemFreeNode(&freeing, other, nullptr, 0, host));
    MUST(hipGraphAddMemFreeNode(&freeing, other, nullptr, 0, more.pointer));
    hipGraphNode_t fill;
    DriverFill nines = {more.pointer, 256, 9, 4, 64, 1};
    MUST(hipDrvGraphAddMemsetNode(&fill, graph, &allocation, 1, &nines, nullptr));
    MUST(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    MUST(hipGraphInstantiate(&second, other, nullptr, nullptr, 0));
    MUST(hipGraphLaunch(exec, stream));
    MUST(hipMemcpyAsync(host, more.pointer, 256, hipMemcpyDeviceToHost, stream));
    CHECK(host[0] == 9 && host[63] == 9);
    MUST(hipGraphLaunch(second, stream));
    MUST(hipStreamSynchronize(stream));
    EXPECT(hipErrorInvalidValue, hipMemset(more.pointer, 0, 4));
    MUST(hipDeviceGraphMemTrim(0));
    MUST(hipDeviceGetGraphMemAttribute(0, 2, &used));
    CHECK(used == before);
    MUST(hipDeviceSetGraphMemAttribute(0, 1, &(most = 0)));
    MUST(hipDeviceGetGraphMemAttribute(0, 1, &most));
    CHECK(most == before);
    MUST(hipGraphDestroy(graph));
    MUST(hipGraphDestroy(other));
    MUST(hipGraphExecDestroy(exec));
    MUST(hipGraphExecDestroy(second));
    MUST(hipStreamDestroy(stream));
    MUST(hipFree(sum));
    printf("PASS\n");
}
