// A kernel fails, and the program waits for what it was to write, whatever the calls answer.
#include "api.h"

__global__ void wild(int *out) { out[index() + 1000000] = 1; }

int main() {
    int *device, host = 0;
    MUST(hipMalloc((void **)&device, 256));
    while (!host) {
        wild<<<1, 64>>>(device);
        (void)hipMemcpy(&host, device, 4, hipMemcpyDeviceToHost);
    }
}
