// The part of HIP that the programs here use, declared anew: what clang needs of a header, and functions by their binary interface.
#pragma once

typedef __SIZE_TYPE__ size_t;
extern "C" int printf(const char *format, ...);
extern "C" void *malloc(size_t bytes);
extern "C" void *calloc(size_t count, size_t bytes);
extern "C" void free(void *pointer);
extern "C" void *memset(void *to, int value, size_t bytes);
extern "C" void *memcpy(void *to, const void *from, size_t bytes);
extern "C" int strcmp(const char *a, const char *b);
extern "C" int atoi(const char *text);
extern "C" void exit(int status);
extern "C" int usleep(unsigned microseconds);

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __launch_bounds__(most) __attribute__((amdgpu_flat_work_group_size(1, most)))

struct dim3 {
    unsigned x, y, z;
    __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// -- on the device -------------------------------------------------------------------------------

#if defined(__HIP_DEVICE_COMPILE__) || defined(__clang__)
struct BlockIndex {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ unsigned get_x() const { return __builtin_amdgcn_workgroup_id_x(); }
    __device__ unsigned get_y() const { return __builtin_amdgcn_workgroup_id_y(); }
    __device__ unsigned get_z() const { return __builtin_amdgcn_workgroup_id_z(); }
};
struct ThreadIndex {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ unsigned get_x() const { return __builtin_amdgcn_workitem_id_x(); }
    __device__ unsigned get_y() const { return __builtin_amdgcn_workitem_id_y(); }
    __device__ unsigned get_z() const { return __builtin_amdgcn_workitem_id_z(); }
};
struct BlockSize {
    __declspec(property(get = get_x)) unsigned x;
    __device__ unsigned get_x() const { return __builtin_amdgcn_workgroup_size_x(); }
};
struct GridSize {
    __declspec(property(get = get_x)) unsigned x;
    __device__ unsigned get_x() const { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
};
static const __device__ BlockIndex blockIdx;
static const __device__ ThreadIndex threadIdx;
static const __device__ BlockSize blockDim;
static const __device__ GridSize gridDim;
__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline int atomicAdd(int *at, int value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline int index() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }
#endif

// -- on the host ---------------------------------------------------------------------------------

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef struct ihipMemGenericAllocationHandle *hipMemGenericAllocationHandle_t;
typedef struct _hiprtcProgram *hiprtcProgram;

enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidConfiguration = 9,
    hipErrorInvalidSymbol = 13,
    hipErrorCooperativeLaunchTooLarge = 720,
    hipErrorInvalidDeviceFunction = 98,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorInvalidHandle = 400,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorIllegalAddress = 700,
    hipErrorContextIsDestroyed = 709,
    hipErrorAssert = 710,
    hipErrorLaunchFailure = 719,
    hipErrorNotSupported = 801
};
enum { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
enum { hipStreamDefault = 0, hipStreamNonBlocking = 1 };
#define hipStreamPerThread ((hipStream_t)2)

struct hipDeviceProp {  // of HIP 6 and 7, up to the name of the architecture
    char name[256];
    char uuid[16], luid[8];
    unsigned luid_mask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    char skipped[1160 - 312];
    char gcnArchName[256];
    char rest[1472 - 1416];
};

struct hipKernelNodeParams {
    dim3 blockDim;
    void **extra, *func;
    dim3 gridDim;
    void **kernelParams;
    unsigned sharedMemBytes;
};
struct hipMemsetParams {
    void *dst;
    unsigned elementSize;
    size_t height, pitch;
    unsigned value;
    size_t width;
};
struct hipHostNodeParams {
    void (*fn)(void *);
    void *userData;
};
struct hipMemLocation {
    int type, id;
};
struct hipMemAllocationProp {
    int type, requestedHandleTypes;
    hipMemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
};
struct hipMemAccessDesc {
    hipMemLocation location;
    int flags;
};

extern "C" {
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds = 0, hipStream_t stream = 0);
hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t lds, hipStream_t stream);
hipError_t hipLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, unsigned lds,
                                      hipStream_t stream);
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipGetDevice(int *device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceReset();
hipError_t hipDeviceSynchronize();
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp *properties, int device);
hipError_t hipGetDeviceProperties(void *properties, int device);
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device);
hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipMalloc(void **pointer, size_t bytes);
hipError_t hipExtMallocWithFlags(void **pointer, size_t bytes, unsigned flags);
hipError_t hipMallocManaged(void **pointer, size_t bytes, unsigned flags = 1);
hipError_t hipMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
hipError_t hipMallocAsync(void **pointer, size_t bytes, hipStream_t stream);
hipError_t hipFree(void *pointer);
hipError_t hipFreeAsync(void *pointer, hipStream_t stream);
hipError_t hipHostMalloc(void **pointer, size_t bytes, unsigned flags);
hipError_t hipHostFree(void *pointer);
hipError_t hipHostRegister(void *pointer, size_t bytes, unsigned flags);
hipError_t hipHostUnregister(void *pointer);
hipError_t hipHostGetDevicePointer(void **result, void *pointer, unsigned flags);
hipError_t hipMemGetInfo(size_t *available, size_t *total);
hipError_t hipPointerGetAttributes(void *attributes, const void *pointer);
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream);
struct PitchedPointer { void *at; size_t pitch, width, height; };
struct PeerSide { void *array; size_t x, y, z; PitchedPointer pitched; int device; };
struct PeerCopy3D { PeerSide from, to; size_t width, height, depth; };
hipError_t hipMemcpy3DPeer(const PeerCopy3D *parameters);
hipError_t hipMemcpy3DPeerAsync(const PeerCopy3D *parameters, hipStream_t stream);
hipError_t hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes);
hipError_t hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);
hipError_t hipMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind);
hipError_t hipMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind);
hipError_t hipGetSymbolAddress(void **address, const void *symbol);
hipError_t hipGetSymbolSize(size_t *bytes, const void *symbol);
hipError_t hipMemset(void *to, int value, size_t bytes);
hipError_t hipMemsetD32(void *to, int value, size_t count);
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemset2D(void *to, size_t pitch, int value, size_t width, size_t height);
hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipStreamAddCallback(hipStream_t stream, void (*call)(hipStream_t, hipError_t, void *), void *data, unsigned flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, void (*call)(void *), void *data);
hipError_t hipEventCreate(hipEvent_t *event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t first, hipEvent_t last);
hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);
hipError_t hipModuleGetGlobal(void **address, size_t *bytes, hipModule_t module, const char *name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned lds, hipStream_t stream, void **arguments, void **extra);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block, size_t lds);
hipError_t hipOccupancyMaxPotentialBlockSize(int *grid, int *block, const void *function, size_t lds, int limit);
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipGraphCreate(hipGraph_t *graph, unsigned flags);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *node, char *log, size_t bytes);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
hipError_t hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count,
                                 const hipKernelNodeParams *parameters);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count, void *to,
                                   const void *from, size_t bytes, int kind);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count,
                                 const hipMemsetParams *parameters);
hipError_t hipGraphAddHostNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count,
                               const hipHostNodeParams *parameters);
hipError_t hipGraphAddEmptyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count,
                                     hipGraph_t child);
hipError_t hipGraphAddEventRecordNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *needs, size_t count,
                                      hipEvent_t event);
hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count);
hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count);
hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to, size_t *count);
hipError_t hipGraphNodeGetType(hipGraphNode_t node, int *type);
hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams *parameters);
hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams *parameters);
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams *parameters);
hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams *parameters);
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, const hipKernelNodeParams *parameters);
hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t *wrong, int *result);
hipError_t hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned enabled);
hipError_t hipGraphClone(hipGraph_t *made, hipGraph_t graph);
hipError_t hipGraphNodeFindInClone(hipGraphNode_t *found, hipGraphNode_t original, hipGraph_t clone);
hipError_t hipGraphDestroyNode(hipGraphNode_t node);
hipError_t hipMemAddressReserve(void **pointer, size_t bytes, size_t alignment, void *wanted, unsigned long long flags);
hipError_t hipMemAddressFree(void *pointer, size_t bytes);
hipError_t hipMemGetAllocationGranularity(size_t *bytes, const hipMemAllocationProp *properties, int which);
hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *memory, size_t bytes, const hipMemAllocationProp *properties,
                        unsigned long long flags);
hipError_t hipMemRelease(hipMemGenericAllocationHandle_t memory);
hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *memory, void *pointer);
hipError_t hipMemMap(void *pointer, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t memory, unsigned long long flags);
hipError_t hipMemUnmap(void *pointer, size_t bytes);
hipError_t hipMemSetAccess(void *pointer, size_t bytes, const hipMemAccessDesc *access, size_t count);
hipError_t hipMemGetAccess(unsigned long long *flags, const hipMemLocation *location, void *pointer);
struct Place { int kind, id; };
struct Channels { int x, y, z, w, kind; };
struct ValueCall { int kind; void *at; unsigned long long value; unsigned flags; unsigned long long padding[2]; };
const char *hipApiName(unsigned number);
Channels hipCreateChannelDesc(int x, int y, int z, int w, int kind);
hipError_t hipGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status);
hipError_t hipMemAdvise_v2(const void *pointer, size_t bytes, int advice, Place place);
hipError_t hipMemPrefetchAsync_v2(const void *pointer, size_t bytes, Place place, unsigned flags, hipStream_t stream);
hipError_t hipMemRangeGetAttribute(void *data, size_t bytes, int attribute, const void *pointer, size_t count);
hipError_t hipMemcpyBatchAsync(void **to, void **from, size_t *bytes, size_t count, void *attributes, size_t *which, size_t kinds,
                               size_t *failed, hipStream_t stream);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority);
hipError_t hipStreamSetAttribute(hipStream_t stream, int attribute, const int *value);
hipError_t hipStreamGetAttribute(hipStream_t stream, int attribute, int *value);
hipError_t hipStreamCopyAttributes(hipStream_t to, hipStream_t from);
hipError_t hipStreamBatchMemOp(hipStream_t stream, unsigned count, ValueCall *calls, unsigned flags);
hipError_t hipLibraryLoadData(hipModule_t *library, const void *image, void **jit, void **jit_values, unsigned jits, void **options,
                              void **values, unsigned count);
hipError_t hipLibraryGetKernel(hipFunction_t *kernel, hipModule_t library, const char *name);
hipError_t hipLibraryUnload(hipModule_t library);
hipError_t hipCreateSurfaceObject(void **surface, const void *resource);
hipError_t hipDestroySurfaceObject(void *surface);
hipError_t hipMallocArray(void **array, const void *format, size_t width, size_t height, unsigned flags);
int hiprtcCreateProgram(hiprtcProgram *program, const char *source, const char *name, int headers, const char **texts,
                        const char **names);
int hiprtcCompileProgram(hiprtcProgram program, int count, const char **options);
int hiprtcGetCodeSize(hiprtcProgram program, size_t *bytes);
int hiprtcGetCode(hiprtcProgram program, char *code);
int hiprtcGetProgramLogSize(hiprtcProgram program, size_t *bytes);
int hiprtcGetProgramLog(hiprtcProgram program, char *log);
int hiprtcDestroyProgram(hiprtcProgram *program);
}

// -- what the programs check with ----------------------------------------------------------------

#define MUST(CALL)                                                                                \
    do {                                                                                          \
        hipError_t error_ = (CALL);                                                                \
        if (error_) printf("line %d: %s: %s\n", __LINE__, #CALL, hipGetErrorName(error_)), exit(1); \
    } while (0)
#define EXPECT(ERROR, CALL)                                                                                                \
    do {                                                                                                                   \
        hipError_t error_ = (CALL);                                                                                         \
        if (error_ != ERROR) printf("line %d: %s: %s, not %s\n", __LINE__, #CALL, hipGetErrorName(error_), #ERROR), exit(1); \
    } while (0)
#define CHECK(WHAT)                                                             \
    do {                                                                        \
        if (!(WHAT)) printf("line %d: not so: %s\n", __LINE__, #WHAT), exit(1); \
    } while (0)
