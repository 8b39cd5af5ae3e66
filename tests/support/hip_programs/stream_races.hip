// Work of two streams, or of a stream and the host, on the same bytes: NAME wrong, or NAME right with what orders it.
#include "api.h"

const int N = 1024, BYTES = N * sizeof(float), BLOCKS = N / 64;

__global__ void fill(float *out, float value) { out[index()] = value; }
__global__ void twice(const float *in, float *out) { out[index()] = 2 * in[index()]; }
__global__ void count(int *total) { atomicAdd(total, 1); }
__global__ void shorts(short *out) { out[2 * index()] = 1; }  // every other one

// One workgroup. A store past the caches tells the host that the others are done; a plain one may stay in the L2.
__global__ void fill_and_tell(float *out, float *told, bool past_caches) {
    out[index()] = 1;
    __syncthreads();
    if (index() != 0) return;
    if (past_caches) __hip_atomic_store(told, 2.0f, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
    else *told = 2;
}

void spin(void *value) {
    while (*(volatile float *)value != 2);
}

int main(int words, char **word) {
    float *a, *b, *pinned;
    hipStream_t first, second;
    hipEvent_t done;
    MUST(hipMalloc((void **)&a, BYTES));
    MUST(hipMalloc((void **)&b, BYTES));
    MUST(hipHostMalloc((void **)&pinned, BYTES, 0));
    MUST(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
    MUST(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
    MUST(hipEventCreate(&done));
    for (int i = 0; i < N; i++) pinned[i] = 1;
    MUST(hipMemset(a, 0, BYTES));  // defined, whoever comes first
    MUST(hipMemset(b, 0, BYTES));
    MUST(hipDeviceSynchronize());
    bool right = words > 2 && !strcmp(word[2], "right");
    auto is = [&](const char *name) { return !strcmp(word[1], name); };
    auto wait = [&] {
        MUST(hipEventRecord(done, first));
        MUST(hipStreamWaitEvent(second, done, 0));
    };
    if (is("kernels")) {
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        if (right) wait();
        twice<<<BLOCKS, 64, 0, second>>>(a, b);
    } else if (is("early-event")) {  // the event is recorded before the work that it should follow
        if (!right) wait();
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        if (right) wait();
        twice<<<BLOCKS, 64, 0, second>>>(a, b);
    } else if (is("copy")) {
        MUST(hipMemcpyAsync(a, pinned, BYTES, hipMemcpyHostToDevice, first));
        if (right) MUST(hipStreamSynchronize(first));
        twice<<<BLOCKS, 64, 0, second>>>(a, b);
    } else if (is("null-stream")) {  // the null stream does not wait for a stream that does not block
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        if (right) while (hipStreamQuery(first) == hipErrorNotReady);
        MUST(hipMemcpy(pinned, a, BYTES, hipMemcpyDeviceToHost));
    } else if (is("fill")) {
        twice<<<BLOCKS, 64, 0, first>>>(pinned, b);
        if (right) MUST(hipEventRecord(done, first));
        if (right) MUST(hipEventSynchronize(done));
        MUST(hipMemsetAsync(b + N / 2, 0, 4, second));
    } else if (is("free")) {
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        fill<<<1, 1, 0, first>>>(pinned, 2);
        if (right) wait();
        else MUST(hipLaunchHostFunc(second, spin, pinned));  // the memory is still there when the kernel runs
        MUST(hipFreeAsync(a, second));
        a = nullptr;
    } else if (is("allocate")) {
        MUST(hipFree(a));
        MUST(hipMallocAsync((void **)&a, BYTES, first));
        if (right) wait();
        fill<<<BLOCKS, 64, 0, second>>>(a, 1);
    } else if (is("halves")) {
        fill<<<BLOCKS / 2, 64, 0, first>>>(a, 1);
        fill<<<BLOCKS / 2, 64, 0, second>>>(a + N / 2 - !right, 2);
    } else if (is("atomics")) {
        count<<<1, 64, 0, first>>>((int *)a);
        if (right) count<<<1, 64, 0, second>>>((int *)a);
        else fill<<<1, 1, 0, second>>>(a, 0);
    } else if (is("polled")) {
        fill_and_tell<<<1, 64, 0, first>>>(a, pinned, right);
        spin(pinned);
        MUST(hipMemsetAsync(a, 0, 4, second));
    } else if (is("parts")) {  // of the same dwords
        shorts<<<1, 64, 0, first>>>((short *)a);
        shorts<<<1, 64, 0, second>>>((short *)a + right);
    } else if (is("chain")) {  // the second stream follows the first by way of the null stream
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        MUST(hipEventRecord(done, first));
        MUST(hipStreamWaitEvent(nullptr, done, 0));
        if (right) MUST(hipEventRecord(done, nullptr));
        MUST(hipStreamWaitEvent(second, done, 0));
        fill<<<BLOCKS, 64>>>(b, 1);
        if (!right) fill<<<BLOCKS, 64, 0, second>>>(b, 2);
        else twice<<<BLOCKS, 64, 0, second>>>(a, pinned);
    }
    else if (is("graph") || is("after-graph")) {  // captured of both streams; the second branch does not need the first
        hipGraph_t graph;
        hipGraphExec_t ready;
        bool ordered = right || is("after-graph");
        MUST(hipStreamBeginCapture(first, 0));
        if (!ordered) wait();
        fill<<<BLOCKS, 64, 0, first>>>(a, 1);
        if (ordered) wait();
        twice<<<BLOCKS, 64, 0, second>>>(a, b);
        MUST(hipEventRecord(done, second));
        MUST(hipStreamWaitEvent(first, done, 0));
        MUST(hipStreamEndCapture(first, &graph));
        MUST(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
        MUST(hipGraphLaunch(ready, first));
        MUST(hipGraphLaunch(ready, first));
        if (is("after-graph")) {
            if (right) wait();
            fill<<<BLOCKS, 64, 0, second>>>(b, 2);
        }
    }
    MUST(hipDeviceSynchronize());
    if (a) MUST(hipFree(a));
    MUST(hipFree(b));
    MUST(hipHostFree(pinned));
}
