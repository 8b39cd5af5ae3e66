// Three buffers, one kernel, a result that the host knows.
#include "api.h"

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = index();
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 1000;
    static float a[n], b[n], c[n];
    for (int i = 0; i < n; i++) a[i] = i, b[i] = 2 * i;
    float *da, *db, *dc;
    MUST(hipMalloc((void **)&da, sizeof a));
    MUST(hipMalloc((void **)&db, sizeof b));
    MUST(hipMalloc((void **)&dc, sizeof c));
    MUST(hipMemcpy(da, a, sizeof a, hipMemcpyHostToDevice));
    MUST(hipMemcpy(db, b, sizeof b, hipMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    MUST(hipGetLastError());
    MUST(hipMemcpy(c, dc, sizeof c, hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(c[i] == 3 * i);
    MUST(hipFree(da));
    MUST(hipFree(db));
    MUST(hipFree(dc));
    printf("PASS\n");
}
