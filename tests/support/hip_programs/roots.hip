// Roots of numbers from the program's first argument on: of negative ones they are NaN.
#include "api.h"

__global__ void roots(const float *in, float *out) {
    float x = in[threadIdx.x];
    out[threadIdx.x] = __builtin_sqrtf(x) + 1;
}

int main(int, char **words) {
    float *in, *out, host[64];
    for (int i = 0; i < 64; i++) host[i] = atoi(words[1]) + i;
    MUST(hipMalloc((void **)&in, sizeof host));
    MUST(hipMalloc((void **)&out, sizeof host));
    MUST(hipMemcpy(in, host, sizeof host, hipMemcpyHostToDevice));
    roots<<<1, 64>>>(in, out);
    MUST(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    printf("%g\n", host[63]);
}
