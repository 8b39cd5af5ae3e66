// One of two files whose device code is linked as one (-fgpu-rdc): parts_other.hip has what is declared here.
#include "api.h"

extern __device__ int twice(int x);
extern __device__ int bias;
static __device__ int own = 1;  // each file's
extern void launch_other(int *x);

// In front of the kernel: clang 22 gives a static variable the name that it has for the host where it meets the host's first use.
static void set_own(int value) { MUST(hipMemcpyToSymbol(&own, &value, sizeof value, 0, hipMemcpyHostToDevice)); }

__global__ void here(int *x) { x[index()] = twice(index()) + bias + own; }

int main() {
    int *x, host[128];
    MUST(hipMalloc((void **)&x, sizeof host));
    here<<<2, 64>>>(x);
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) CHECK(host[i] == 2 * i + 7 + 1);
    launch_other(x);
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) CHECK(host[i] == 7 + 2000);
    set_own(100);
    here<<<2, 64>>>(x);
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) CHECK(host[i] == 2 * i + 8 + 100);
    launch_other(x);
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) CHECK(host[i] == 8 + 2000);
    MUST(hipFree(x));
    printf("PASS\n");
}
