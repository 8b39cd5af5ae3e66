// A kernel that reads what nobody wrote, and a copy of such bytes.
#include "api.h"

__global__ void add_first_half(const int *in, int *out) {
    int i = index();
    if (in[i] > 0) out[i] = in[i];
}

int main() {
    int *in, *out, host[128] = {0};
    MUST(hipMalloc((void **)&in, sizeof host));
    MUST(hipMalloc((void **)&out, sizeof host));
    MUST(hipMemcpy(in, host, sizeof host / 2, hipMemcpyHostToDevice));  // the second half is never written
    add_first_half<<<2, 64>>>(in, out);
    MUST(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    MUST(hipMemcpy(host, in, sizeof host, hipMemcpyDeviceToHost));
    MUST(hipFree(in));
    MUST(hipFree(out));
}
