// What the device says of itself.
#include "api.h"

__global__ void __launch_bounds__(256) small(int *out) { out[threadIdx.x] = 1; }
__global__ void large(int *out) {
    __shared__ int lds[8192];
    lds[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = lds[threadIdx.x ^ 1];
}

int main() {
    hipDeviceProp properties;
    int count, value, blocks, grid, block;
    MUST(hipGetDeviceCount(&count));
    MUST(hipGetDevicePropertiesR0600(&properties, 0));
    char old[792];
    MUST(hipGetDeviceProperties(old, 0));
    CHECK(strcmp(properties.name, old) == 0 && strcmp(properties.gcnArchName, old + 396) == 0);
    MUST(hipDeviceGetAttribute(&value, 87, 0));
    CHECK(value == 64 && properties.warpSize == 64);
    MUST(hipDeviceGetAttribute(&value, 56, 0));
    CHECK(value == 1024);
    EXPECT(hipErrorInvalidValue, hipDeviceGetAttribute(&value, 55555, 0));
    EXPECT(hipErrorInvalidDevice, hipDeviceGetAttribute(&value, 87, 1));
    MUST(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)large, 256, 0));
    const int granule = properties.sharedMemPerBlock == 65536 ? 512 : 1280;  // of LDS (LLVM, getLdsDwGranularity)
    CHECK(blocks == (int)properties.sharedMemPerBlock / ((32768 + granule - 1) / granule * granule));
    MUST(hipOccupancyMaxPotentialBlockSize(&grid, &block, (const void *)small, 0, 0));
    CHECK(block % 64 == 0 && block <= 256 && grid > 0);

    // Launches that no GPU takes.
    int *out;
    MUST(hipMalloc((void **)&out, 4096));
    small<<<1, 2048>>>(out);
    EXPECT(hipErrorInvalidConfiguration, hipGetLastError());
    small<<<1, 512>>>(out);
    EXPECT(hipErrorLaunchFailure, hipGetLastError());
    small<<<0, 64>>>(out);
    EXPECT(hipErrorInvalidConfiguration, hipGetLastError());
    small<<<1u << 31, 64>>>(out);
    EXPECT(hipErrorInvalidConfiguration, hipGetLastError());
    large<<<1, 64, 1 << 20>>>(out);
    EXPECT(701, hipGetLastError());
    int host = 0;
    EXPECT(hipErrorInvalidDeviceFunction, hipLaunchKernel(&host, 1, 64, nullptr, 0, 0));
    (void)hipGetLastError();
    void *array;
    EXPECT(hipErrorNotSupported, hipMallocArray(&array, &array, 16, 16, 0));
    EXPECT(hipErrorNotSupported, hipMallocArray(&array, &array, 16, 16, 0));
    EXPECT(hipErrorNotSupported, hipCreateSurfaceObject(nullptr, nullptr));
    EXPECT(hipErrorInvalidValue, hipDestroySurfaceObject(&array));
    MUST(hipDestroySurfaceObject(nullptr));
    MUST(hipFree(out));
    printf("%s %s\nPASS\n", properties.name, properties.gcnArchName);
}
