// Addresses that are reserved, and memory that is mapped there by hand: kernels and copies reach it as any other.
#include "api.h"

__global__ void add(int *values, int n, int value) {
    int i = index();
    if (i < n) values[i] += value;
}

int main() {
    const hipMemAllocationProp properties = {1, 0, {1, 0}, nullptr, {}};
    const hipMemAccessDesc both = {{1, 0}, 3}, none = {{1, 0}, 0}, reading = {{1, 0}, 1};
    size_t page, large, before, after, total;
    int supported;
    MUST(hipDeviceGetAttribute(&supported, 89, 0));  // hipDeviceAttributeVirtualMemoryManagementSupported
    MUST(hipMemGetAllocationGranularity(&page, &properties, 0));
    MUST(hipMemGetAllocationGranularity(&large, &properties, 1));
    CHECK(supported && page && large % page == 0);
    const int n = (int)(page / sizeof(int));
    int *host = (int *)malloc(3 * page), *range, *other;
    for (int i = 0; i < 3 * n; i++) host[i] = i;

    // A range of three pages, of which two chunks of memory take two and one.
    MUST(hipMemGetInfo(&before, &total));
    hipMemGenericAllocationHandle_t two, one, again;
    MUST(hipMemAddressReserve((void **)&range, 3 * page, 0, nullptr, 0));
    MUST(hipMemCreate(&two, 2 * page, &properties, 0));
    MUST(hipMemCreate(&one, page, &properties, 0));
    MUST(hipMemGetInfo(&after, &total));
    CHECK(before - after == 3 * page);
    MUST(hipMemMap(range, 2 * page, 0, two, 0));
    EXPECT(hipErrorInvalidValue, hipMemMap(range + n, page, 0, one, 0));  // taken
    EXPECT(hipErrorInvalidValue, hipMemMap(range + 3 * n, page, 0, one, 0));  // not reserved
    EXPECT(hipErrorInvalidValue, hipMemSetAccess(range, 3 * page, &both, 1));  // not all of it is mapped
    MUST(hipMemMap(range + 2 * n, page, 0, one, 0));
    MUST(hipMemSetAccess(range, 3 * page, &both, 1));
    MUST(hipMemcpy(range, host, 3 * page, hipMemcpyHostToDevice));
    add<<<3 * n / 256, 256>>>(range, 3 * n, 7);
    MUST(hipMemcpy(host, range, 3 * page, hipMemcpyDeviceToHost));
    for (int i = 0; i < 3 * n; i++) CHECK(host[i] == i + 7);
    EXPECT(hipErrorInvalidValue, hipMemcpy(host, range, 3 * page + 4, hipMemcpyDeviceToHost));

    // The same memory at a second address.
    MUST(hipMemAddressReserve((void **)&other, page, 1 << 22, nullptr, 0));
    CHECK((size_t)other % (1 << 22) == 0);
    MUST(hipMemRetainAllocationHandle(&again, range + 2 * n + 5));
    CHECK(again == one);
    MUST(hipMemMap(other, page, 0, again, 0));
    MUST(hipMemSetAccess(other, page, &both, 1));
    add<<<n / 256, 256>>>(other, n, 100);
    MUST(hipMemcpy(host, range + 2 * n, page, hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(host[i] == i + 2 * n + 107);

    // Memory lives as long as someone holds it, and its addresses can be mapped anew.
    EXPECT(hipErrorInvalidValue, hipMemUnmap(range, page));  // a part of a mapping
    EXPECT(hipErrorInvalidValue, hipMemAddressFree(range, 3 * page));  // in use
    MUST(hipMemUnmap(range, 3 * page));
    EXPECT(hipErrorInvalidValue, hipMemcpy(host, range, 4, hipMemcpyDeviceToHost));
    MUST(hipMemRelease(one));
    MUST(hipMemRelease(again));
    MUST(hipMemMap(range, 2 * page, 0, two, 0));
    MUST(hipMemRelease(two));
    MUST(hipMemSetAccess(range, 2 * page, &both, 1));
    MUST(hipMemcpy(host, range, 2 * page, hipMemcpyDeviceToHost));
    for (int i = 0; i < 2 * n; i++) CHECK(host[i] == i + 7);
    MUST(hipMemcpy(host, other, page, hipMemcpyDeviceToHost));
    CHECK(host[0] == 2 * n + 107);
    MUST(hipMemUnmap(other, page));
    EXPECT(hipErrorInvalidValue, hipMemRelease(one));

    // What may only be read, and what may not be accessed, no kernel writes.
    unsigned long long flags;
    MUST(hipMemSetAccess(range, 2 * page, &reading, 1));
    MUST(hipMemGetAccess(&flags, &reading.location, range));
    CHECK(flags == 1);
    for (int i = 0; i < 2; i++) {
        add<<<1, 256>>>(range, 256, 1);
        EXPECT(hipErrorIllegalAddress, hipDeviceSynchronize());
        MUST(hipDeviceReset());
        MUST(hipMemSetAccess(range, 2 * page, &none, 1));
    }
    MUST(hipMemUnmap(range, 2 * page));
    MUST(hipMemAddressFree(range, 3 * page));
    MUST(hipMemAddressFree(other, page));
    EXPECT(hipErrorInvalidValue, hipMemMap(other, page, 0, two, 0));
    MUST(hipMemGetInfo(&after, &total));
    CHECK(after == before);
    printf("PASS\n");
}
