// Contexts: each device has only the primary one.
#include "internal.h"

extern Error hipGetDevice(int *device);
extern Error hipDeviceSynchronize(void);
extern Error hipGetDeviceFlags(u32 *flags);
extern Error hipDeviceEnablePeerAccess(int peer, u32 flags);
extern Error hipDeviceDisablePeerAccess(int peer);
extern Error hipDeviceGetCacheConfig(int *config);
extern Error hipDeviceSetCacheConfig(int config);
extern Error hipDeviceGetSharedMemConfig(int *config);
extern Error hipDeviceSetSharedMemConfig(int config);

typedef struct {
    Handle handle;
    int device;
    u32 held;
} Context;
static Context *contexts[MAX_DEVICES];

static Context *context_of(int device) {
    pthread_mutex_lock(&lock);
    if (!contexts[device] && (contexts[device] = make_handle(CONTEXT, sizeof(Context)))) contexts[device]->device = device;
    pthread_mutex_unlock(&lock);
    return contexts[device];
}

API Error hipCtxCreate(Context **result, u32 flags, int device) {
    Error error = check_device(device);
    if (!error && !result) error = INVALID_VALUE;
    if (error) return done(error);
    *result = context_of(device);
    state.device[device].flags = flags;
    current_device = device;
    return done(SUCCESS);
}

API Error hipCtxDestroy(Context *context) { return done(is_handle(context, CONTEXT) ? SUCCESS : INVALID_VALUE); }

API Error hipCtxSetCurrent(Context *context) {
    if (context && !is_handle(context, CONTEXT)) return done(INVALID_CONTEXT);
    if (context) current_device = context->device;
    return done(SUCCESS);
}

API Error hipCtxPushCurrent(Context *context) { return hipCtxSetCurrent(context); }

API Error hipCtxGetCurrent(Context **result) {
    Error error = begin();
    if (!error && !result) error = INVALID_VALUE;
    if (!error) *result = context_of(current_device);
    return done(error);
}

API Error hipCtxPopCurrent(Context **result) { return result ? hipCtxGetCurrent(result) : SUCCESS; }
API Error hipCtxGetDevice(int *device) { return hipGetDevice(device); }
API Error hipCtxSynchronize(void) { return hipDeviceSynchronize(); }
API Error hipCtxGetFlags(u32 *flags) { return hipGetDeviceFlags(flags); }
API Error hipCtxGetApiVersion(Context *context, int *result) {
    return (void)context, result ? (*result = 4, SUCCESS) : done(INVALID_VALUE);
}
API Error hipCtxEnablePeerAccess(Context *peer, u32 flags) {
    return is_handle(peer, CONTEXT) ? hipDeviceEnablePeerAccess(peer->device, flags) : done(INVALID_VALUE);
}
API Error hipCtxDisablePeerAccess(Context *peer) {
    return is_handle(peer, CONTEXT) ? hipDeviceDisablePeerAccess(peer->device) : done(INVALID_VALUE);
}

API Error hipDevicePrimaryCtxRetain(Context **result, int device) {
    Error error = check_device(device);
    if (!error && !result) error = INVALID_VALUE;
    if (!error) *result = context_of(device), (*result)->held++;
    return done(error);
}

API Error hipDevicePrimaryCtxRelease(int device) {
    Error error = check_device(device);
    if (!error && context_of(device)->held) context_of(device)->held--;
    return done(error);
}

API Error hipDevicePrimaryCtxReset(int device) { return done(check_device(device)); }
API Error hipDevicePrimaryCtxSetFlags(int device, u32 flags) { return (void)flags, done(check_device(device)); }

API Error hipDevicePrimaryCtxGetState(int device, u32 *flags, int *active) {
    Error error = check_device(device);
    if (!error && (!flags || !active)) error = INVALID_VALUE;
    if (!error) *flags = 0, *active = device == current_device;
    return done(error);
}

API Error hipCtxGetCacheConfig(int *config) { return hipDeviceGetCacheConfig(config); }
API Error hipCtxSetCacheConfig(int config) { return hipDeviceSetCacheConfig(config); }
API Error hipCtxGetSharedMemConfig(int *config) { return hipDeviceGetSharedMemConfig(config); }
API Error hipCtxSetSharedMemConfig(int config) { return hipDeviceSetSharedMemConfig(config); }
