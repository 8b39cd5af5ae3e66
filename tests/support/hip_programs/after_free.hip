// A kernel that is given memory which was freed.
#include "api.h"

__global__ void put(int *out) { out[threadIdx.x] = 1; }

int main() {
    int *out;
    MUST(hipMalloc((void **)&out, 256));
    MUST(hipFree(out));
    put<<<1, 64>>>(out);
    printf("%s\n", hipGetErrorName(hipDeviceSynchronize()));
}
