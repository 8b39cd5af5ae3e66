// Names and messages of errors, a thread's last error, calls that are missing.
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct {
    Error value;
    const char *name, *text;
} Row;

static const Row ROWS[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "invalid argument"},
    {2, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {4, "hipErrorDeinitialized", "driver shutting down"},
    {5, "hipErrorProfilerDisabled", "profiler disabled while using external profiling tool"},
    {6, "hipErrorProfilerNotInitialized", "profiler is not initialized"},
    {7, "hipErrorProfilerAlreadyStarted", "profiler already started"},
    {8, "hipErrorProfilerAlreadyStopped", "profiler already stopped"},
    {9, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "hipErrorInvalidPitchValue", "invalid pitch argument"},
    {13, "hipErrorInvalidSymbol", "invalid device symbol"},
    {17, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {21, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {35, "hipErrorInsufficientDriver", "driver version is insufficient for runtime version"},
    {52, "hipErrorMissingConfiguration", "__global__ function call is not configured"},
    {53, "hipErrorPriorLaunchFailure", "unspecified launch failure in prior launch"},
    {98, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {202, "hipErrorContextAlreadyCurrent", "context is already current context"},
    {205, "hipErrorMapFailed", "mapping of buffer object failed"},
    {206, "hipErrorUnmapFailed", "unmapping of buffer object failed"},
    {207, "hipErrorArrayIsMapped", "array is mapped"},
    {208, "hipErrorAlreadyMapped", "resource already mapped"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {210, "hipErrorAlreadyAcquired", "resource already acquired"},
    {211, "hipErrorNotMapped", "resource not mapped"},
    {212, "hipErrorNotMappedAsArray", "resource not mapped as array"},
    {213, "hipErrorNotMappedAsPointer", "resource not mapped as pointer"},
    {214, "hipErrorECCNotCorrectable", "uncorrectable ECC error encountered"},
    {215, "hipErrorUnsupportedLimit", "limit is not supported on this architecture"},
    {216, "hipErrorContextAlreadyInUse", "exclusive-thread device already in use by a different thread"},
    {217, "hipErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {218, "hipErrorInvalidKernelFile", "invalid kernel file"},
    {219, "hipErrorInvalidGraphicsContext", "invalid OpenGL or DirectX context"},
    {300, "hipErrorInvalidSource", "device kernel image is invalid"},
    {301, "hipErrorFileNotFound", "file not found"},
    {302, "hipErrorSharedObjectSymbolNotFound", "shared object symbol not found"},
    {303, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {304, "hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
    {401, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {500, "hipErrorNotFound", "named symbol not found"},
    {600, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {704, "hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {705, "hipErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {708, "hipErrorSetOnActiveProcess", "cannot set while device is active in this process"},
    {709, "hipErrorContextIsDestroyed", "context is destroyed"},
    {710, "hipErrorAssert", "device-side assert triggered"},
    {712, "hipErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {713, "hipErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {719, "hipErrorLaunchFailure", "unspecified launch failure"},
    {720, "hipErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "hipErrorNotSupported", "operation not supported"},
    {900, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {902, "hipErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {903, "hipErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {904, "hipErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {905, "hipErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {906, "hipErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "hipErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "hipErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread"},
    {910, "hipErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"},
    {911, "hipErrorInvalidChannelDescriptor", "invalid channel descriptor"},
    {912, "hipErrorInvalidTexture", "invalid texture"},
    {999, "hipErrorUnknown", "unknown error"},
    {1052, "hipErrorRuntimeMemory", "runtime memory call returned error"},
    {1053, "hipErrorRuntimeOther", "runtime call other than memory returned error"},
    {1054, "hipErrorTbd", "to be determined"},
};

static __thread Error last;

static const Row *row_of(Error error) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (ROWS[i].value == error) return &ROWS[i];
    return NULL;
}

// Calls that share a function are named together.
static const struct {
    const char *function, *name;
} SHARED[] = {
    {"load_image", "hipModuleLoadData"},
    {"of_runtime", "hiprtc's linker"},
    {"record", "hipEventRecord"},
    {"known", "a kernel's lookup"},
    {"instantiate", "hipGraphInstantiate"},
    {"begin_capture", "hipStreamBeginCapture"},
    {"create", "hipStreamCreate"},
    {"call_back", "hipStreamAddCallback"},
    {"properties", "hipGetDeviceProperties"},
    {"choose", "hipChooseDevice"},
    {"set_peer", "access to a peer"},
    {"get_config", "a device's configuration"},
    {"set_config", "a device's configuration"},
    {"active", "hipOccupancyMaxActiveBlocksPerMultiprocessor"},
    {"potential", "hipOccupancyMaxPotentialBlockSize"},
    {"value", "a stream's value"},
    {"add_copy", "a graph's copy"},
    {"set_copy", "a graph's copy"},
    {"fill_of_driver", "a graph's fill"},
    {"host_operation", "a graph's call of the host"},
    {"add_event", "a graph's event"},
    {"get_event", "a graph's event"},
    {"set_event", "a graph's event"},
    {"is_done", "a shared event"},
    {"is_shared_ready", "a shared event"},
    {"wait_shared", "a shared event"},
    {"wait_until_done", "a shared event"},
    {"run_shared_wait", "a shared event"},
};

static const char *name_of_call(const char *function) {
    for (size_t i = 0; i < sizeof SHARED / sizeof *SHARED; i++)
        if (!strcmp(SHARED[i].function, function)) return SHARED[i].name;
    return function;
}

#define MOST_FAILURES 256

static struct {
    const char *call;
    Error error;
    u32 times;
} failures[MOST_FAILURES];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void count_failure(const char *call, Error error) {
    pthread_mutex_lock(&counting);
    for (int i = 0; i < MOST_FAILURES; i++) {
        if (failures[i].call && (strcmp(failures[i].call, call) || failures[i].error != error)) continue;
        failures[i].call = call, failures[i].error = error, failures[i].times++;
        break;
    }
    pthread_mutex_unlock(&counting);
}

char *failed_calls(void) {
    enum { LINE = 160 };
    char *made = calloc(MOST_FAILURES, LINE), *at = made;
    for (int i = 0; made && i < MOST_FAILURES && failures[i].call; i++) {
        const Row *row = row_of(failures[i].error);
        at += snprintf(at, LINE, "%.64s\t%.64s\t%u\n", name_of_call(failures[i].call), row ? row->name : "unknown", failures[i].times);
    }
    return made;
}

// Prints a call's result, for `simgpu hip --trace-calls`. A call that another makes is printed, too, before it.
static void trace(const char *call, Error error) {
    static int wanted = -1;
    int traces = __atomic_load_n(&wanted, __ATOMIC_RELAXED);
    if (traces < 0) __atomic_store_n(&wanted, traces = getenv("SIMGPU_HIP_TRACE") != NULL, __ATOMIC_RELAXED);
    const Row *row = row_of(error);
    if (traces) say("%s: %s", name_of_call(call), row ? row->name : "hipErrorUnknown");
}

// Keeps the thread's last error: since HIP 7 that of the last call that failed, before that of the last call.
Error ended(const char *call, Error error) {
    trace(call, error);
    if (error && error != NOT_READY) count_failure(call, error);
    if (hip_version() < 70000000 || (error && error != NOT_READY)) last = error;
    return error;
}

void say(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "simgpu hip: %s\n", text);
}

// Refuses a call; prints the reason the first time for each name.
static Error refuse(const char *name, const char *why) {
    enum { NAMES = 512 };
    static const char *told[NAMES];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    int at = 0;
    while (at < NAMES && told[at] && told[at] != name) at++;
    bool first = at < NAMES && !told[at];
    if (first) told[at] = name;
    pthread_mutex_unlock(&mutex);
    if (first) say("%s %s: it answers hipErrorNotSupported", name, why);
    return ended(name, NOT_SUPPORTED);
}

Error missing(const char *name) { return refuse(name, "is not simulated"); }
Error missing_of(const char *name, const void *first) { return first ? missing(name) : ended(name, INVALID_VALUE); }
Error no_image(const char *name, const void *first) { return first ? no_images(name) : ended(name, INVALID_VALUE); }
Error no_images(const char *name) { return refuse(name, "needs images, which the device has not (hipDeviceAttributeImageSupport is 0)"); }

API Error hipGetLastError(void) {
    Error found = last;
    last = SUCCESS;
    return found;
}

API Error hipExtGetLastError(void) { return hipGetLastError(); }

API Error hipPeekAtLastError(void) { return last; }

API const char *hipGetErrorName(Error error) {
    const Row *row = row_of(error);
    return row ? row->name : "hipErrorUnknown";
}

API const char *hipGetErrorString(Error error) {
    const Row *row = row_of(error);
    return row ? row->text : "unknown error";
}

API Error hipDrvGetErrorName(Error error, const char **name) {
    const Row *row = row_of(error);
    if (!name || !row) return done(INVALID_VALUE);
    *name = row->name;
    return SUCCESS;
}

API Error hipDrvGetErrorString(Error error, const char **text) {
    const Row *row = row_of(error);
    if (!text || !row) return done(INVALID_VALUE);
    *text = row->text;
    return SUCCESS;
}

// The numbers of calls are those of roctracer. No tracer is here, and ROCm calls a number that it does not know "unknown", too.
API const char *hipApiName(u32 number) { return (void)number, "unknown"; }
