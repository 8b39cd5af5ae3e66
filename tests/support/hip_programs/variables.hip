// Variables of the device: constants, globals, managed ones.
#include "api.h"

__constant__ int table[16];
__device__ int counter = 5;
__managed__ int shared_by_both[64] = {1, 2, 3};

__global__ void use(int *out) {
    out[threadIdx.x] = table[threadIdx.x % 16] + counter;
    shared_by_both[threadIdx.x] += threadIdx.x;
}
__global__ void count() { atomicAdd(&counter, 1); }

int main() {
    int values[16], out[64], *device;
    for (int i = 0; i < 16; i++) values[i] = 3 * i;
    CHECK(shared_by_both[1] == 2);
    shared_by_both[0] = 100;
    MUST(hipMemcpyToSymbol(table, values, sizeof values, 0, hipMemcpyHostToDevice));
    MUST(hipMalloc((void **)&device, sizeof out));
    use<<<1, 64>>>(device);
    count<<<10, 64>>>();
    MUST(hipMemcpy(out, device, sizeof out, hipMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) CHECK(out[i] == 3 * (i % 16) + 5);
    CHECK(shared_by_both[0] == 100 && shared_by_both[1] == 3 && shared_by_both[63] == 63);
    int found = 0;
    MUST(hipMemcpyFromSymbol(&found, &counter, 4, 0, hipMemcpyDeviceToHost));
    CHECK(found == 645);
    void *address;
    size_t bytes;
    MUST(hipGetSymbolAddress(&address, &counter));
    MUST(hipGetSymbolSize(&bytes, table));
    CHECK(bytes == 64);
    found = 7;
    MUST(hipMemcpy(address, &found, 4, hipMemcpyHostToDevice));
    use<<<1, 64>>>(device);
    MUST(hipMemcpy(out, device, sizeof out, hipMemcpyDeviceToHost));
    CHECK(out[0] == 7);
    EXPECT(hipErrorInvalidSymbol, hipGetSymbolSize(&bytes, &found));
    MUST(hipFree(device));
    printf("PASS\n");
}
