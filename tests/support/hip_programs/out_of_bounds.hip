// A kernel that writes one element too many: the bound is <=.
#include "api.h"

__global__ void fill(int *out, int n) {
    int i = index();
    if (i <= n) out[i] = i;
}

int main() {
    int *out;
    MUST(hipMalloc((void **)&out, 100 * sizeof(int)));
    fill<<<1, 128>>>(out, 100);
    hipError_t error = hipDeviceSynchronize();
    printf("%s\n", hipGetErrorName(error));
}
