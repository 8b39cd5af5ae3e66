// The host stores to device memory itself, which it can where all device memory has addresses on the host. Arguments: a kind of
// memory (default: all kinds); a mistake, by which kernels also read what nobody stored. 1: the last element; 2: a copy of it, at
// an odd address; 3: a copy of it on the host.
#include "api.h"

enum { COUNT = 128, PAGE = 4096 };
enum { MALLOC, ASYNC, MAPPED, MANAGED, PINNED, KINDS };

template <typename T>
__global__ void count_positive(const T *in, int *out, int count) {
    int found = 0;
    for (int i = 0; i < count; i++)
        if (in[i] > 0) found++;
    out[index()] = found;
}

template <typename T>
static int positive(const T *in, int count) {
    int *out, found;
    MUST(hipMalloc((void **)&out, 64 * sizeof(int)));
    count_positive<<<1, 64>>>(in, out, count);
    MUST(hipMemcpy(&found, out, sizeof found, hipMemcpyDeviceToHost));
    MUST(hipFree(out));
    return found;
}

static void map_page(void **made) {
    const hipMemAllocationProp properties = {1, 0, {1, 0}, nullptr, {}};
    const hipMemAccessDesc access = {{1, 0}, 3};
    hipMemGenericAllocationHandle_t memory;
    MUST(hipMemAddressReserve(made, PAGE, 0, nullptr, 0));
    MUST(hipMemCreate(&memory, PAGE, &properties, 0));
    MUST(hipMemMap(*made, PAGE, 0, memory, 0));
    MUST(hipMemSetAccess(*made, PAGE, &access, 1));
}

static void run(int kind, int mistake) {
    int *in, host[COUNT];
    signed char *bytes;
    switch (kind) {
    case MALLOC: MUST(hipMalloc((void **)&in, sizeof host)); break;
    case ASYNC: MUST(hipMallocAsync((void **)&in, sizeof host, nullptr)); break;
    case MAPPED: map_page((void **)&in); break;
    case MANAGED: MUST(hipMallocManaged((void **)&in, sizeof host)); break;
    case PINNED: MUST(hipHostMalloc((void **)&in, sizeof host, 0)); break;
    }
    MUST(hipMalloc((void **)&bytes, sizeof host + 1));
    for (int i = 0; i < COUNT - 1; i++) in[i] = i % 3;  // zeros, too
    CHECK(positive(in, COUNT - (mistake != 1)) == 84);
    in[0] = 7;  // after a launch
    CHECK(positive(in, COUNT - 1) == 85);
    MUST(hipMemcpy(bytes + 1, in, sizeof host, hipMemcpyDeviceToDevice));
    CHECK(positive(bytes + 1, (int)sizeof host - 4 * (mistake != 2)) >= 85);
    in[1] = 0;
    MUST(hipMemcpy(host, in, sizeof host - 4 * (mistake != 3), hipMemcpyDeviceToHost));
    CHECK(host[0] == 7 && host[1] == 0);
    if (kind == PINNED) MUST(hipHostFree(in));
    else MUST(kind == MAPPED ? hipMemUnmap(in, PAGE) : hipFree(in));
    MUST(hipFree(bytes));
}

int main(int arguments, char **argument) {
    int only = arguments > 1 ? atoi(argument[1]) : KINDS, mistake = arguments > 2 ? atoi(argument[2]) : 0;
    for (int kind = 0; kind < KINDS; kind++)
        if (only == KINDS || only == kind) run(kind, mistake);
    printf("PASS\n");
}
