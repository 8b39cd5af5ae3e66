// The other file of parts.hip: device functions and variables that kernels there use, and a kernel of its own.
#include "api.h"

__device__ int bias = 7;
static __device__ int own = 2000;

__device__ int twice(int x) { return 2 * x; }
__global__ void there(int *x) { x[index()] = bias + own; }

void launch_other(int *x) {
    static int launches = 0;
    there<<<2, 64>>>(x);
    int value = 7 + ++launches;
    MUST(hipMemcpyToSymbol(&bias, &value, sizeof value, 0, hipMemcpyHostToDevice));
}
