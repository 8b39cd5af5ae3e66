// Graphs that are built node by node, asked for what they hold, changed, and launched.
#include "api.h"

union Attribute {  // hipKernelNodeAttrValue
    struct {
        void *base;
        int hit;
        float hit_ratio;
        int miss;
        size_t bytes;
    } window;
    int number;
};
extern "C" {
hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t, int, const Attribute *);
hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t, int, Attribute *);
hipError_t hipGraphKernelNodeCopyAttributes(hipGraphNode_t, hipGraphNode_t);
hipError_t hipGraphNodeGetEnabled(hipGraphExec_t, hipGraphNode_t, unsigned *);
hipError_t hipGraphDebugDotPrint(hipGraph_t, const char *path, unsigned flags);
struct FILE *fopen(const char *, const char *);
int fclose(struct FILE *);
char *fgets(char *, int, struct FILE *);
char *strstr(const char *, const char *);
int remove(const char *), close(int), mkstemp(char *);
}

__global__ void add(int *out, int value) { out[threadIdx.x] += value; }
__global__ void multiply(int *out, int value) { out[threadIdx.x] *= value; }
static void called(void *data) { ++*(int *)data; }

static int *a, host[64], calls;

static int launched(hipGraphExec_t exec) {
    MUST(hipMemset(a, 0, sizeof host));
    MUST(hipGraphLaunch(exec, nullptr));
    MUST(hipDeviceSynchronize());
    for (int i = 1; i < 64; i++) CHECK(host[i] == host[0]);
    return host[0];
}

int main() {
    hipGraph_t graph, child, clone;
    hipGraphExec_t exec;
    hipGraphNode_t fill, plus, times, copy, call, empty, inner, record, found[9], to[9];
    hipEvent_t event;
    MUST(hipMalloc((void **)&a, sizeof host));
    MUST(hipEventCreate(&event));
    MUST(hipGraphCreate(&graph, 0));

    // a = (2 + 3) * 10, copied to the host, and a call behind it; the order is that of the dependencies, not of the making.
    int three = 3, ten = 10;
    void *of_plus[] = {&a, &three}, *of_times[] = {&a, &ten};
    const hipMemsetParams two = {a, 4, 1, 0, 2, 64};
    hipKernelNodeParams adding = {{64}, nullptr, (void *)add, {1}, of_plus, 0}, seen;
    const hipKernelNodeParams multiplying = {{64}, nullptr, (void *)multiply, {1}, of_times, 0};
    const hipHostNodeParams calling = {called, &calls};
    MUST(hipGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, host, a, sizeof host, hipMemcpyDeviceToHost));
    MUST(hipGraphAddHostNode(&call, graph, &copy, 1, &calling));
    MUST(hipGraphAddKernelNode(&times, graph, nullptr, 0, &multiplying));
    MUST(hipGraphAddMemsetNode(&fill, graph, nullptr, 0, &two));
    MUST(hipGraphAddKernelNode(&plus, graph, &fill, 1, &adding));
    three = ten = -1;  // the nodes have their own
    MUST(hipGraphAddDependencies(graph, &plus, &times, 1));
    MUST(hipGraphAddDependencies(graph, &times, &copy, 1));
    EXPECT(hipErrorInvalidValue, hipGraphAddDependencies(graph, &times, &copy, 1));  // is there
    EXPECT(hipErrorInvalidValue, hipGraphAddKernelNode(&times, graph, nullptr, 1, &multiplying));
    MUST(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    CHECK(launched(exec) == 50 && calls == 1);

    // What it holds.
    size_t count = 9;
    MUST(hipGraphGetRootNodes(graph, found, &count));
    CHECK(count == 1 && found[0] == fill);
    count = 9;
    MUST(hipGraphGetEdges(graph, found, to, &count));
    CHECK(count == 4);
    int type;
    MUST(hipGraphNodeGetType(plus, &type));
    CHECK(type == 0);
    MUST(hipGraphNodeGetType(call, &type));
    CHECK(type == 3);
    hipMemsetParams filling;
    hipHostNodeParams host_call;
    MUST(hipGraphMemsetNodeGetParams(fill, &filling));
    CHECK(filling.dst == a && filling.elementSize == 4 && filling.width == 64 && filling.height == 1 && filling.value == 2);
    MUST(hipGraphHostNodeGetParams(call, &host_call));
    CHECK(host_call.fn == called && host_call.userData == &calls);
    MUST(hipGraphKernelNodeGetParams(plus, &seen));
    CHECK(seen.func == (void *)add && seen.blockDim.x == 64 && seen.gridDim.x == 1 && *(int *)seen.kernelParams[1] == 3);
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeGetParams(fill, &seen));

    // Changes: of the graph, which what is executable does not see, and of what is executable.
    int value = 5;
    seen.kernelParams[1] = &value;
    MUST(hipGraphKernelNodeSetParams(plus, &seen));
    CHECK(launched(exec) == 50);
    hipGraphNode_t wrong;
    int result;
    MUST(hipGraphExecUpdate(exec, graph, &wrong, &result));
    CHECK(result == 0 && launched(exec) == 70);
    value = 8;
    adding.kernelParams[1] = &value;
    MUST(hipGraphExecKernelNodeSetParams(exec, plus, &adding));
    CHECK(launched(exec) == 100);
    MUST(hipGraphNodeSetEnabled(exec, times, 0));
    CHECK(launched(exec) == 10);
    MUST(hipGraphNodeSetEnabled(exec, times, 1));
    CHECK(launched(exec) == 100);
    MUST(hipGraphExecDestroy(exec));

    // A clone, a graph in a graph, events, and a node less.
    MUST(hipGraphClone(&clone, graph));
    MUST(hipGraphNodeFindInClone(&inner, times, clone));
    CHECK(inner != times);
    MUST(hipGraphDestroyNode(inner));
    MUST(hipGraphNodeFindInClone(&inner, plus, clone));
    hipGraphNode_t last;
    MUST(hipGraphNodeFindInClone(&last, copy, clone));
    MUST(hipGraphAddDependencies(clone, &inner, &last, 1));
    MUST(hipGraphCreate(&child, 0));
    MUST(hipGraphAddChildGraphNode(&inner, child, nullptr, 0, clone));
    MUST(hipGraphAddEmptyNode(&empty, child, &inner, 1));
    MUST(hipGraphAddEventRecordNode(&record, child, &empty, 1, event));
    MUST(hipGraphInstantiate(&exec, child, nullptr, nullptr, 0));
    calls = 0;
    CHECK(launched(exec) == 7 && calls == 1);
    MUST(hipEventQuery(event));
    MUST(hipGraphExecDestroy(exec));

    // A cycle is refused.
    MUST(hipGraphAddDependencies(graph, &call, &fill, 1));
    EXPECT(hipErrorInvalidValue, hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    MUST(hipGraphRemoveDependencies(graph, &call, &fill, 1));

    // Kernels that were captured tell their parameters, too, and take others.
    hipStream_t stream;
    hipGraph_t captured;
    MUST(hipStreamCreate(&stream));
    MUST(hipStreamBeginCapture(stream, 0));
    add<<<1, 64, 0, stream>>>(a, 1000);
    MUST(hipMemcpyAsync(host, a, sizeof host, hipMemcpyDeviceToHost, stream));
    MUST(hipStreamEndCapture(stream, &captured));
    count = 9;
    MUST(hipGraphGetRootNodes(captured, found, &count));
    MUST(hipGraphKernelNodeGetParams(found[0], &seen));
    CHECK(seen.func == (void *)add && seen.blockDim.x == 64 && *(int *)seen.kernelParams[1] == 1000);
    value = 77;
    seen.kernelParams[1] = &value;
    MUST(hipGraphKernelNodeSetParams(found[0], &seen));
    MUST(hipGraphInstantiate(&exec, captured, nullptr, nullptr, 0));
    CHECK(launched(exec) == 77);

    // Attributes: one at a time. Nodes of no work are neither enabled nor not.
    enum { WINDOW = 1, COOPERATIVE = 2, PRIORITY = 8 };
    Attribute one = {.number = 1}, other = {};
    unsigned enabled;
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeSetAttribute(found[0], 3, &one));
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeSetAttribute(call, COOPERATIVE, &one));
    MUST(hipGraphKernelNodeSetAttribute(found[0], COOPERATIVE, &one));
    MUST(hipGraphKernelNodeGetAttribute(found[0], COOPERATIVE, &other));
    CHECK(other.number == 1);
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeGetAttribute(found[0], PRIORITY, &other));
    MUST(hipGraphKernelNodeCopyAttributes(found[0], plus));
    other = {};
    MUST(hipGraphKernelNodeGetAttribute(plus, COOPERATIVE, &other));
    CHECK(other.number == 1);
    one.number = 7;
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeSetAttribute(times, PRIORITY, &one));
    one = {};
    one.window = {a, 1, 2.0f, 0, 0};
    EXPECT(hipErrorInvalidValue, hipGraphKernelNodeSetAttribute(times, WINDOW, &one));
    one.window.hit_ratio = 0.5f;
    MUST(hipGraphKernelNodeSetAttribute(times, WINDOW, &one));
    EXPECT(201, hipGraphKernelNodeCopyAttributes(found[0], times));
    MUST(hipGraphNodeGetEnabled(exec, found[0], &enabled));
    CHECK(enabled == 1);
    EXPECT(hipErrorInvalidValue, hipGraphNodeGetEnabled(exec, call, &enabled));

    // As text.
    char path[] = "/tmp/simgpu-graph-XXXXXX";
    close(mkstemp(path));
    EXPECT(304, hipGraphDebugDotPrint(captured, "", 0));
    MUST(hipGraphDebugDotPrint(captured, path, 0));
    FILE *file = fopen(path, "r");
    char line[256];
    int lines = 0, arrows = 0;
    for (; file && fgets(line, sizeof line, file); lines++) arrows += strstr(line, " -> ") != nullptr;
    CHECK(lines == 5 && arrows == 1);
    CHECK(fclose(file) == 0 && remove(path) == 0);

    MUST(hipGraphExecDestroy(exec));
    MUST(hipGraphDestroy(graph));
    MUST(hipGraphDestroy(clone));
    MUST(hipGraphDestroy(child));
    MUST(hipGraphDestroy(captured));
    EXPECT(hipErrorInvalidValue, hipGraphNodeGetType(plus, &type));
    MUST(hipStreamDestroy(stream));
    MUST(hipEventDestroy(event));
    MUST(hipFree(a));
    printf("PASS\n");
}
