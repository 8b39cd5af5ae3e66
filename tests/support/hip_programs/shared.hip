// Two processes share memory and an event: handles go through a pipe, the child's kernel works on the parent's allocation.
#include "api.h"

extern "C" int fork();
extern "C" int waitpid(int process, int *status, int options);
extern "C" void _exit(int status);
extern "C" int pipe(int *ends);
extern "C" long read(int file, void *to, size_t bytes);
extern "C" long write(int file, const void *from, size_t bytes);

struct Handle {
    char bytes[64];
};
extern "C" {
hipError_t hipIpcGetMemHandle(Handle *, void *);
hipError_t hipIpcOpenMemHandle(void **, Handle, unsigned);
hipError_t hipIpcCloseMemHandle(void *);
hipError_t hipEventCreateWithFlags(hipEvent_t *, unsigned);
hipError_t hipIpcGetEventHandle(Handle *, hipEvent_t);
hipError_t hipIpcOpenEventHandle(hipEvent_t *, Handle);
hipError_t hipPointerGetAttributes(void *, const void *);
}
enum { NUMBER = 3000, LAZY = 1, NO_TIMING = 2, INTERPROCESS = 4 };

__global__ void add(int *out, int value) {
    if (index() < NUMBER) out[index()] += value;
}
__global__ void slow(int *out) {
    for (int i = 0; i < 20000; i++) __builtin_amdgcn_s_sleep(1);
    out[0] += 1000;
}

struct Message {
    Handle memory, inside, event;
};

static void in_child(int from_parent, int to_parent) {
    Message message;
    CHECK(read(from_parent, &message, sizeof message) == sizeof message);
    int *shared, *again, *inside;
    char attributes[64];
    MUST(hipIpcOpenMemHandle((void **)&shared, message.memory, LAZY));
    MUST(hipIpcOpenMemHandle((void **)&again, message.memory, LAZY));
    MUST(hipIpcOpenMemHandle((void **)&inside, message.inside, LAZY));
    CHECK(again == shared && inside == shared + 7);
    hipEvent_t event;
    hipStream_t stream;
    MUST(hipIpcOpenEventHandle(&event, message.event));
    MUST(hipStreamCreate(&stream));
    MUST(hipStreamWaitEvent(stream, event, 0));  // the parent's slow kernel
    add<<<(NUMBER + 63) / 64, 64, 0, stream>>>(shared, 5);
    MUST(hipEventRecord(event, stream));
    CHECK(write(to_parent, "x", 1) == 1);
    MUST(hipStreamSynchronize(stream));
    int first;
    MUST(hipMemcpy(&first, shared, 4, hipMemcpyDeviceToHost));
    CHECK(first == 1005);
    CHECK(hipIpcOpenMemHandle((void **)&again, message.event, LAZY) == hipErrorInvalidValue);
    CHECK(hipIpcOpenMemHandle((void **)&again, message.memory, 0) == hipErrorInvalidValue);
    MUST(hipIpcCloseMemHandle(shared));
    MUST(hipIpcCloseMemHandle(shared));
    MUST(hipPointerGetAttributes(attributes, shared));
    MUST(hipIpcCloseMemHandle(shared));
    CHECK(hipPointerGetAttributes(attributes, shared) == hipErrorInvalidValue);
    CHECK(hipIpcCloseMemHandle(shared) == hipErrorInvalidValue);
    MUST(hipEventDestroy(event));
}

int main() {
    int to_child[2], to_parent[2], status = 1;
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    int child = fork();
    if (!child) {
        in_child(to_child[0], to_parent[1]);
        exit(0);
    }
    int *memory, *other;
    hipEvent_t event, plain;
    Message message;
    MUST(hipMalloc((void **)&memory, NUMBER * 4));
    MUST(hipMemset(memory, 0, NUMBER * 4));
    MUST(hipEventCreateWithFlags(&event, NO_TIMING | INTERPROCESS));
    MUST(hipEventCreateWithFlags(&plain, NO_TIMING));
    MUST(hipIpcGetMemHandle(&message.memory, memory));
    MUST(hipIpcGetMemHandle(&message.inside, memory + 7));
    MUST(hipIpcGetEventHandle(&message.event, event));
    CHECK(hipIpcGetEventHandle(&message.event, plain) == hipErrorInvalidConfiguration);
    CHECK(hipIpcOpenMemHandle((void **)&other, message.memory, LAZY) == 201);  // hipErrorInvalidContext: it is this process's
    CHECK(hipIpcGetMemHandle(&message.memory, memory + NUMBER) == hipErrorInvalidValue);
    MUST(hipEventQuery(event));
    slow<<<1, 1>>>(memory);
    MUST(hipEventRecord(event, 0));
    CHECK(write(to_child[1], &message, sizeof message) == sizeof message);
    char done;
    CHECK(read(to_parent[0], &done, 1) == 1);
    MUST(hipEventSynchronize(event));  // the child's record
    int host[NUMBER];
    MUST(hipMemcpy(host, memory, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < NUMBER; i++) CHECK(host[i] == 5 + (i ? 0 : 1000));
    waitpid(child, &status, 0);
    CHECK(status == 0);
    MUST(hipFree(memory));
    printf("PASS\n");
}
