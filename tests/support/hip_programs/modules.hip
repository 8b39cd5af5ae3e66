// Kernels compiled while the program runs, loaded and launched by name.
#include "api.h"

static const char *SOURCE = R"(
#include "scale.h"
extern "C" { __constant__ int bias; }
extern "C" __global__ void scale(float *x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = times(x[i], by) + bias;
}
extern "C" { __managed__ int counted[2] = {7, 8}; }
extern "C" __global__ void count() { counted[1] += counted[0]; }
template <class T> __global__ void fill(T *x, T value) { x[threadIdx.x] = value; }
)";

extern "C" int hiprtcAddNameExpression(hiprtcProgram program, const char *name);
extern "C" int hiprtcGetLoweredName(hiprtcProgram program, const char *name, const char **lowered);

typedef struct LinkState *Link;
extern "C" int hiprtcGetBitcodeSize(hiprtcProgram program, size_t *bytes);
extern "C" int hiprtcGetBitcode(hiprtcProgram program, char *bitcode);
extern "C" int hiprtcLinkCreate(unsigned options, int *names, void **values, Link *link);
extern "C" int hiprtcLinkAddData(Link link, int type, void *image, size_t bytes, const char *name, unsigned options, int *names,
                                 void **values);
extern "C" int hiprtcLinkComplete(Link link, void **code, size_t *bytes);
extern "C" int hiprtcLinkDestroy(Link link);

struct Cooperative {  // hipFunctionLaunchParams
    hipFunction_t function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, lds;
    hipStream_t stream;
    void **arguments;
};
extern "C" hipError_t hipModuleLaunchCooperativeKernelMultiDevice(Cooperative *, unsigned count, unsigned flags);

int main(int, char **words) {
    hiprtcProgram program;
    const char *text = "#if __HIPCC_RTC__ != 1\n#error hiprtc is not known\n#endif\n"
                       "__device__ inline float times(float a, float b) { return a * b; }", *name = "scale.h";
    const char *source = "extern \"C\" __global__ void broken(int *x) { x[0] = nothing; }";
    size_t bytes;
    CHECK(hiprtcCreateProgram(&program, source, "broken.hip", 0, nullptr, nullptr) == 0);
    CHECK(hiprtcCompileProgram(program, 0, nullptr) == 6);
    CHECK(hiprtcGetProgramLogSize(program, &bytes) == 0 && bytes > 1);
    char *log = (char *)calloc(1, bytes);
    CHECK(hiprtcGetProgramLog(program, log) == 0);
    printf("%s", log);
    CHECK(hiprtcDestroyProgram(&program) == 0);

    const char *options[] = {"--offload-arch=gfx90a", "-O2", "-DVALUE=1"};
    CHECK(hiprtcCreateProgram(&program, SOURCE, "scale.hip", 1, &text, &name) == 0);
    CHECK(hiprtcAddNameExpression(program, "fill<int>") == 0);
    if (hiprtcCompileProgram(program, 3, options)) {
        CHECK(hiprtcGetProgramLogSize(program, &bytes) == 0);
        log = (char *)calloc(1, bytes + 1);
        hiprtcGetProgramLog(program, log);
        printf("%s", log);
        return 1;
    }
    CHECK(hiprtcGetCodeSize(program, &bytes) == 0);
    char *code = (char *)malloc(bytes);
    const char *lowered;
    CHECK(hiprtcGetCode(program, code) == 0);
    CHECK(hiprtcGetLoweredName(program, "fill<int>", &lowered) == 0);
    CHECK(hiprtcGetLoweredName(program, "fill<float>", &lowered) == 10);

    hipModule_t module;
    hipFunction_t scale, fill;
    MUST(hipModuleLoadData(&module, code));
    MUST(hipModuleGetFunction(&scale, module, "scale"));
    CHECK(hiprtcGetLoweredName(program, "fill<int>", &lowered) == 0);
    MUST(hipModuleGetFunction(&fill, module, lowered));
    EXPECT(hipErrorNotFound, hipModuleGetFunction(&fill, module, "nothing"));
    EXPECT(hipErrorInvalidImage, hipModuleLoadData(&module, "this is no code object, whatever it is"));
    EXPECT(hipErrorInvalidImage, hipModuleLoadData(&module, "CCOB\1\0\0\0\377\377\377\377 of 4 GiB, as it says"));
    EXPECT(hipErrorInvalidImage, hipModuleLoadData(&module, "CCOB\1\0\0\0\0\20\0\0 of a page, as it says"));
    float *x, host[100];
    int n = 100, value = 9;
    float by = 3;
    for (int i = 0; i < n; i++) host[i] = i;
    MUST(hipMalloc((void **)&x, sizeof host));
    MUST(hipMemcpy(x, host, sizeof host, hipMemcpyHostToDevice));
    void *address;
    MUST(hipModuleGetGlobal(&address, &bytes, module, "bias"));
    MUST(hipMemsetD32(address, 4, 1));
    void *arguments[] = {&x, &by, &n};
    MUST(hipModuleLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(host[i] == 3 * i + 4);
    struct {
        void *x;
        float by;
        int n;
    } packed = {x, 2, n};
    size_t size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, (void *)3};
    MUST(hipModuleLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(host[i] == 6 * i + 12);
    void *filled[] = {&x, &value};
    MUST(hipModuleLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, nullptr, filled, nullptr));
    MUST(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    CHECK(*(int *)&host[63] == 9);

    hipFunction_t count;
    int *counted;
    MUST(hipModuleGetFunction(&count, module, "count"));
    MUST(hipModuleGetGlobal((void **)&counted, &bytes, module, "counted"));
    CHECK(bytes == 8 && counted[0] == 7 && counted[1] == 8);  // the host reaches it, too
    counted[0] = 30;
    Cooperative all[] = {{count, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr}, {count, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr}};
    MUST(hipModuleLaunchCooperativeKernelMultiDevice(all, 1, 0));
    EXPECT(hipErrorInvalidValue, hipModuleLaunchCooperativeKernelMultiDevice(all, 2, 0));
    MUST(hipDeviceSynchronize());
    CHECK(counted[1] == 38);

    EXPECT(hipErrorInvalidValue, hipModuleGetGlobal(nullptr, nullptr, module, "counted"));
    EXPECT(hipErrorNotFound, hipModuleGetGlobal((void **)&counted, &bytes, module, "nothing"));
    EXPECT(hipErrorInvalidValue, hipModuleLaunchKernel(count, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    EXPECT(hipErrorInvalidValue, hipModuleLaunchKernel(count, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));
    EXPECT(hipErrorInvalidValue, hipModuleLaunchKernel(count, 1, 1, 1, 1, 1, 1, 1 << 30, nullptr, nullptr, nullptr));
    EXPECT(hipErrorInvalidValue, hipModuleLaunchKernel(count, 1u << 31, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    EXPECT(hipErrorInvalidConfiguration, hipModuleLaunchKernel(count, 1, 1, 1, 1, 0, 1, 0, nullptr, nullptr, nullptr));
    MUST(hipModuleUnload(module));
    EXPECT(hipErrorNotFound, hipModuleUnload(module));
    MUST(hipLibraryLoadData(&module, code, nullptr, nullptr, 0, nullptr, nullptr, 0));
    MUST(hipLibraryGetKernel(&count, module, "count"));
    EXPECT(hipErrorNotFound, hipLibraryGetKernel(&count, module, "nothing"));
    MUST(hipLibraryUnload(module));
    EXPECT(hipErrorInvalidHandle, hipModuleLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    MUST(hipFree(x));
    CHECK(hiprtcDestroyProgram(&program) == 0);

    // Two sources, compiled to bitcode and linked.
    const char *parts[] = {"__device__ int by_two(int); extern \"C\" __global__ void halve(int *x) { *x = by_two(*x); }",
                           "__device__ int by_two(int x) { return x / 2; }"};
    const char *relocatable[] = {"-fgpu-rdc"};
    Link link;
    CHECK(hiprtcLinkCreate(0, nullptr, nullptr, &link) == 0);
    void *linked;
    for (const char *part : parts) {
        CHECK(hiprtcCreateProgram(&program, part, nullptr, 0, nullptr, nullptr) == 0);
        CHECK(hiprtcCompileProgram(program, 1, relocatable) == 0);
        CHECK(hiprtcGetBitcodeSize(program, nullptr) == 3 && hiprtcGetBitcodeSize(program, &bytes) == 0);
        char *bitcode = (char *)malloc(bytes);
        CHECK(hiprtcGetBitcode(program, bitcode) == 0);
        CHECK(hiprtcLinkAddData(link, 0, bitcode, bytes, nullptr, 0, nullptr, nullptr) == 3);  // a cubin
        CHECK(hiprtcLinkAddData(link, 100, bitcode, bytes, nullptr, 0, nullptr, nullptr) == 0);
        if (part == parts[0]) CHECK(hiprtcLinkComplete(link, &linked, &bytes) == 100);  // by_two is missing
        CHECK(hiprtcDestroyProgram(&program) == 0);
    }
    CHECK(hiprtcLinkComplete(link, &linked, &bytes) == 0);
    MUST(hipModuleLoadData(&module, linked));
    CHECK(hiprtcLinkDestroy(link) == 0 && hiprtcLinkDestroy(link) == 3);
    MUST(hipModuleGetFunction(&count, module, "halve"));
    int *number, eighty = 80;
    MUST(hipMalloc((void **)&number, 4));
    MUST(hipMemcpy(number, &eighty, 4, hipMemcpyHostToDevice));
    void *halved[] = {&number};
    MUST(hipModuleLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, nullptr, halved, nullptr));
    MUST(hipMemcpy(&eighty, number, 4, hipMemcpyDeviceToHost));
    CHECK(eighty == 40);
    MUST(hipModuleUnload(module));
    MUST(hipFree(number));
    printf("PASS\n");
}
