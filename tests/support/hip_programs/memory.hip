// Kinds of memory, copies in one and two dimensions, fills.
#include "api.h"

__global__ void double_all(int *values, int n) {
    int i = index();
    if (i < n) values[i] *= 2;
}

__device__ int variable[16];

int main() {
    const int n = 300;
    int host[n], back[n];
    for (int i = 0; i < n; i++) host[i] = i;
    size_t before, total, after;
    MUST(hipMemGetInfo(&before, &total));
    int *device, *pinned, *managed, *async;
    MUST(hipMalloc((void **)&device, sizeof host));
    MUST(hipHostMalloc((void **)&pinned, sizeof host, 0));
    MUST(hipMallocManaged((void **)&managed, sizeof host));
    MUST(hipMallocAsync((void **)&async, sizeof host, nullptr));
    MUST(hipMemGetInfo(&after, &total));
    CHECK(after == before - 2 * sizeof host && total >= before);

    // Pinned and managed memory is the device's at the same address.
    for (int i = 0; i < n; i++) pinned[i] = managed[i] = i;
    void *same;
    MUST(hipHostGetDevicePointer(&same, pinned, 0));
    CHECK(same == pinned);
    double_all<<<2, 256>>>(pinned, n);
    double_all<<<2, 256>>>(managed, n);
    MUST(hipDeviceSynchronize());
    for (int i = 0; i < n; i++) CHECK(pinned[i] == 2 * i && managed[i] == 2 * i);

    // The program's own memory, once it is registered: heap and stack, two that share a page; none that share a granule of 4 bytes.
    static char odd[64];
    MUST(hipHostRegister(odd + 3, 2, 0));
    EXPECT(712, hipHostRegister(odd + 5, 3, 0));
    MUST(hipHostRegister(odd + 8, 3, 0));
    MUST(hipHostUnregister(odd + 3));
    MUST(hipHostUnregister(odd + 8));
    char *own = (char *)malloc(2 * sizeof host + 8);
    int *left = (int *)own, *right = (int *)(own + sizeof host + 8);
    for (int i = 0; i < n; i++) left[i] = i, right[i] = -i;
    MUST(hipHostRegister(left, sizeof host, 0));
    MUST(hipHostRegister(right, sizeof host, 0));
    EXPECT(712, hipHostRegister(left + 1, 8, 0));
    double_all<<<2, 256>>>(left, n);
    double_all<<<2, 256>>>(right, n);
    MUST(hipDeviceSynchronize());
    MUST(hipHostUnregister(left));
    right[0] = 41;
    for (int i = 0; i < n; i++) CHECK(left[i] == 2 * i && (i == 0 || right[i] == -2 * i));
    MUST(hipHostUnregister(right));
    CHECK(right[0] == 41 && right[n - 1] == -2 * (n - 1));
    EXPECT(713, hipHostUnregister(right));
    MUST(hipHostRegister(host, sizeof host, 0));
    double_all<<<2, 256>>>(host, n);
    MUST(hipDeviceSynchronize());
    MUST(hipHostUnregister(host));
    for (int i = 0; i < n; i++) CHECK(host[i] == 2 * i);
    free(own);

    // Copies.
    MUST(hipMemcpy(device, host, sizeof host, hipMemcpyHostToDevice));
    MUST(hipMemcpy(async, device, sizeof host, hipMemcpyDeviceToDevice));
    MUST(hipMemcpyAsync(back, async, sizeof host, hipMemcpyDefault, nullptr));
    MUST(hipDeviceSynchronize());
    for (int i = 0; i < n; i++) CHECK(back[i] == 2 * i);
    char *plane;
    size_t pitch;
    MUST(hipMallocPitch((void **)&plane, &pitch, 50, 20));
    CHECK(pitch >= 50 && pitch % 128 == 0);
    char picture[1000], seen[1000];
    for (int i = 0; i < 1000; i++) picture[i] = i % 97;
    MUST(hipMemcpy2D(plane, pitch, picture, 50, 50, 20, hipMemcpyHostToDevice));
    MUST(hipMemset2D(plane + pitch, pitch, 7, 10, 2));
    MUST(hipMemcpy2D(seen, 50, plane, pitch, 50, 20, hipMemcpyDeviceToHost));
    for (int i = 0; i < 1000; i++) CHECK(seen[i] == (i / 50 >= 1 && i / 50 < 3 && i % 50 < 10 ? 7 : picture[i]));
    MUST(hipMemset(device, 0x11, sizeof host));
    MUST(hipMemsetD32(device, 123, n / 2));
    MUST(hipMemcpy(back, device, sizeof host, hipMemcpyDeviceToHost));
    CHECK(back[0] == 123 && back[n / 2 - 1] == 123 && back[n / 2] == 0x11111111);

    // What is wrong is refused.
    EXPECT(hipErrorInvalidValue, hipMemcpy(device, host, sizeof host + 4, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipMemcpy(device + n, host, 4, hipMemcpyHostToDevice));
    EXPECT(21, hipMemcpy(device, host, 4, 9));
    EXPECT(hipErrorInvalidValue, hipMemset(nullptr, 0, 4));
    EXPECT(hipErrorInvalidValue, hipMemcpyToSymbol(variable, host, 4, 64, hipMemcpyHostToDevice));
    EXPECT(hipErrorInvalidValue, hipFree(device + 1));
    EXPECT(hipErrorInvalidValue, hipFree(host));
    EXPECT(hipErrorOutOfMemory, hipMalloc(&same, (size_t)1 << 60));
    MUST(hipMalloc(&same, 0));
    CHECK(same == nullptr);
    MUST(hipFree(nullptr));
    CHECK(hipPeekAtLastError() == hipErrorOutOfMemory && hipGetLastError() == hipErrorOutOfMemory && hipGetLastError() == hipSuccess);

    MUST(hipFree(plane));
    MUST(hipFree(device));
    EXPECT(hipErrorInvalidValue, hipFree(device));
    EXPECT(hipErrorInvalidValue, hipMemcpy(host, device, 4, hipMemcpyDeviceToHost));
    MUST(hipFree(managed));
    MUST(hipHostFree(pinned));
    MUST(hipFreeAsync(async, nullptr));
    MUST(hipDeviceSynchronize());
    MUST(hipMemGetInfo(&after, &total));
    CHECK(after == before);
    printf("PASS\n");
}
