// Forks before and after HIP, and threads that use it at once.
#include "api.h"

extern "C" int fork();
extern "C" int waitpid(int process, int *status, int options);
extern "C" void _exit(int status);
extern "C" int pthread_create(unsigned long *thread, const void *, void *(*run)(void *), void *);
extern "C" int pthread_join(unsigned long thread, void **);

__global__ void add(int *out, int value) { out[threadIdx.x] += value; }

static void *work(void *given) {
    long number = (long)given;
    int *a, host[64];
    MUST(hipMalloc((void **)&a, 256));
    MUST(hipMemset(a, 0, 256));
    for (int i = 0; i < 20; i++) add<<<1, 64, 0, hipStreamPerThread>>>(a, (int)number);
    MUST(hipMemcpyAsync(host, a, 256, hipMemcpyDeviceToHost, hipStreamPerThread));
    MUST(hipStreamSynchronize(hipStreamPerThread));
    CHECK(host[0] == 20 * number && host[63] == 20 * number);
    MUST(hipFree(a));
    return nullptr;
}

int main() {
    int status, child = fork();
    if (!child) {
        work((void *)3);
        _exit(0);
    }
    work((void *)5);
    waitpid(child, &status, 0);
    CHECK(status == 0);
    unsigned long threads[6];
    for (long i = 0; i < 6; i++) pthread_create(&threads[i], nullptr, work, (void *)i);
    for (auto thread : threads) pthread_join(thread, nullptr);
    child = fork();
    if (!child) {
        void *a;
        _exit(hipMalloc(&a, 4) == 3 ? 0 : 1);  // hipErrorNotInitialized
    }
    waitpid(child, &status, 0);
    CHECK(status == 0);
    work((void *)7);
    printf("PASS\n");
}
