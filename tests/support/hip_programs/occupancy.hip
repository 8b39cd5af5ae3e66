// How many blocks reside on a compute unit. Without arguments: of a kernel with many scalar registers, and the cooperative launches
// of it. FILE KERNEL…: of a code object's kernels, a line for each with each number of bytes of dynamic LDS.
#include "api.h"

extern "C" {
hipError_t hipModuleLoad(hipModule_t *module, const char *path);
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, hipFunction_t function, int block, size_t lds);
hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks, int block);
}

__global__ void scalars(int *out) {
    asm volatile("s_mov_b32 s100, 1" ::: "s100", "s101");
    out[index()] = 1;
}

static int of_file(char **words, int count) {
    hipModule_t module;
    MUST(hipModuleLoad(&module, words[0]));
    for (int i = 1; i < count; i++) {
        hipFunction_t kernel;
        MUST(hipModuleGetFunction(&kernel, module, words[i]));
        for (size_t lds = 0; lds < 40000; lds += 13001) {
            for (int block = 60; block <= 1024; block += 64) {
                int blocks;
                MUST(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block, lds));
                printf("%d ", blocks);
            }
            printf("\n");
        }
    }
    return 0;
}

int main(int count, char **words) {
    if (count > 1) return of_file(words + 1, count - 1);
    int blocks, compute_units, *out;
    MUST(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)scalars, 64, 0));
    MUST(hipDeviceGetAttribute(&compute_units, 63, 0));
    MUST(hipMalloc((void **)&out, (blocks * compute_units + 1) * 256));
    void *arguments[] = {&out};
    dim3 all(blocks * compute_units), more(blocks * compute_units + 1);
    EXPECT(hipErrorCooperativeLaunchTooLarge, hipLaunchCooperativeKernel((const void *)scalars, more, dim3(64), arguments, 0, 0));
    (void)hipGetLastError();
    MUST(hipLaunchCooperativeKernel((const void *)scalars, all, dim3(64), arguments, 0, 0));
    MUST(hipDeviceSynchronize());
    for (int wanted = 1; wanted <= 16; wanted++) {
        size_t bytes;
        int fit;
        MUST(hipOccupancyAvailableDynamicSMemPerBlock(&bytes, (const void *)scalars, wanted, 64));
        MUST(hipOccupancyMaxActiveBlocksPerMultiprocessor(&fit, (const void *)scalars, 64, bytes));
        CHECK(fit >= wanted);
    }
    printf("%d\n", blocks);
}
