// A sum over a block that forgets a barrier.
#include "api.h"

__global__ void sum(const float *in, float *out) {
    __shared__ float part[256];
    unsigned i = threadIdx.x;
    part[i] = in[blockIdx.x * 256 + i];
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (i < half) part[i] += part[i + half];
        // __syncthreads() belongs here
    }
    if (i == 0) out[blockIdx.x] = part[0];
}

int main() {
    const int blocks = 4, n = 256 * blocks;
    static float host[n];
    float *in, *out, sums[blocks];
    for (int i = 0; i < n; i++) host[i] = 1;
    MUST(hipMalloc((void **)&in, sizeof host));
    MUST(hipMalloc((void **)&out, sizeof sums));
    MUST(hipMemcpy(in, host, sizeof host, hipMemcpyHostToDevice));
    sum<<<blocks, 256>>>(in, out);
    MUST(hipMemcpy(sums, out, sizeof sums, hipMemcpyDeviceToHost));
    for (int i = 0; i < blocks; i++) printf("%g\n", sums[i]);
    MUST(hipFree(in));
    MUST(hipFree(out));
}
