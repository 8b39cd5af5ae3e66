// A stream that a thread destroys takes no more work from another one: it would never be done, and be waited for.
#include "api.h"

extern "C" int pthread_create(unsigned long *thread, const void *, void *(*run)(void *), void *);
extern "C" int pthread_join(unsigned long thread, void **);

static volatile int entered, left;
static void sleeps(void *) {
    entered = 1;
    usleep(400000);
    left = 1;
}
static void *destroys(void *stream) {
    MUST(hipStreamDestroy((hipStream_t)stream));
    CHECK(left);  // it waits for what was queued before
    return nullptr;
}

int main() {
    int *memory;
    hipStream_t stream;
    hipEvent_t event;
    unsigned long thread;
    MUST(hipMalloc((void **)&memory, 256));
    MUST(hipStreamCreate(&stream));
    MUST(hipEventCreate(&event));
    MUST(hipLaunchHostFunc(stream, sleeps, nullptr));
    while (!entered) usleep(1000);
    pthread_create(&thread, nullptr, destroys, stream);
    usleep(150000);
    EXPECT(hipErrorContextIsDestroyed, hipMemsetAsync(memory, 0, 256, stream));
    EXPECT(hipErrorContextIsDestroyed, hipEventRecord(event, stream));
    MUST(hipEventQuery(event));  // it was not recorded
    MUST(hipEventSynchronize(event));
    CHECK(!left);
    pthread_join(thread, nullptr);
    MUST(hipDeviceSynchronize());
    MUST(hipMemset(memory, 0, 256));
    MUST(hipFree(memory));
    printf("PASS\n");
}
