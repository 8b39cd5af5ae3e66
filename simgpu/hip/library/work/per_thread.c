// Calls of programs built with -fgpu-default-stream=per-thread: stream 0 is the calling thread's own.
#include "internal.h"

#define PER_THREAD(NAME, PARAMETERS, ARGUMENTS) \
    extern Error NAME PARAMETERS;               \
    API Error NAME##_spt PARAMETERS {           \
        default_is_per_thread++;                \
        Error error = NAME ARGUMENTS;           \
        default_is_per_thread--;                \
        return error;                           \
    }

PER_THREAD(hipMemcpy, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind))
PER_THREAD(hipMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream), (to, from, bytes, kind, stream))
PER_THREAD(hipMemcpy2D, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind),
           (to, to_pitch, from, from_pitch, width, height, kind))
PER_THREAD(hipMemcpy2DAsync,
           (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream),
           (to, to_pitch, from, from_pitch, width, height, kind, stream))
PER_THREAD(hipMemcpy3D, (const Copy3D *parameters), (parameters))
PER_THREAD(hipMemcpy3DAsync, (const Copy3D *parameters, void *stream), (parameters, stream))
PER_THREAD(hipMemcpyToSymbol, (const void *symbol, const void *from, size_t bytes, size_t offset, int kind),
           (symbol, from, bytes, offset, kind))
PER_THREAD(hipMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int kind),
           (to, symbol, bytes, offset, kind))
PER_THREAD(hipMemcpyToSymbolAsync, (const void *symbol, const void *from, size_t bytes, size_t offset, int kind, void *stream),
           (symbol, from, bytes, offset, kind, stream))
PER_THREAD(hipMemcpyFromSymbolAsync, (void *to, const void *symbol, size_t bytes, size_t offset, int kind, void *stream),
           (to, symbol, bytes, offset, kind, stream))
PER_THREAD(hipMemset, (void *to, int value, size_t bytes), (to, value, bytes))
PER_THREAD(hipMemsetAsync, (void *to, int value, size_t bytes, void *stream), (to, value, bytes, stream))
PER_THREAD(hipMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height), (to, pitch, value, width, height))
PER_THREAD(hipMemset2DAsync, (void *to, size_t pitch, int value, size_t width, size_t height, void *stream),
           (to, pitch, value, width, height, stream))
PER_THREAD(hipMemset3D, (PitchedPointer to, int value, Extent extent), (to, value, extent))
PER_THREAD(hipMemset3DAsync, (PitchedPointer to, int value, Extent extent, void *stream), (to, value, extent, stream))
PER_THREAD(hipStreamSynchronize, (void *stream), (stream))
PER_THREAD(hipStreamQuery, (void *stream), (stream))
PER_THREAD(hipStreamGetFlags, (void *stream, u32 *flags), (stream, flags))
PER_THREAD(hipStreamGetPriority, (void *stream, int *priority), (stream, priority))
PER_THREAD(hipStreamWaitEvent, (void *stream, void *event, u32 flags), (stream, event, flags))
PER_THREAD(hipStreamAddCallback, (void *stream, void (*call)(void *, Error, void *), void *data, u32 flags),
           (stream, call, data, flags))
PER_THREAD(hipStreamBeginCapture, (void *stream, int mode), (stream, mode))
PER_THREAD(hipStreamEndCapture, (void *stream, void **graph), (stream, graph))
PER_THREAD(hipStreamIsCapturing, (void *stream, int *status), (stream, status))
PER_THREAD(hipStreamGetCaptureInfo, (void *stream, int *status, u64 *id), (stream, status, id))
PER_THREAD(hipStreamGetCaptureInfo_v2, (void *stream, int *status, u64 *id, void **graph, void **needs, size_t *count),
           (stream, status, id, graph, needs, count))
PER_THREAD(hipEventRecord, (void *event, void *stream), (event, stream))
PER_THREAD(hipGraphLaunch, (void *exec, void *stream), (exec, stream))
PER_THREAD(hipLaunchHostFunc, (void *stream, void (*call)(void *), void *data), (stream, call, data))
PER_THREAD(hipLaunchKernel, (const void *host, Dim3 grid, Dim3 block, void **arguments, size_t lds, void *stream),
           (host, grid, block, arguments, lds, stream))
PER_THREAD(hipLaunchCooperativeKernel, (const void *host, Dim3 grid, Dim3 block, void **arguments, u32 lds, void *stream),
           (host, grid, block, arguments, lds, stream))
