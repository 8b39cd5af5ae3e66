// Devices, their properties and peers. The server sends the properties of a board (simgpu/hip/properties.py).
#include "internal.h"

#include <dlfcn.h>
#include <stdio.h>

#define NAME_BYTES 256
#define LIMITS 3  // hipLimitRange

Error check_device(int device) {
    Error error = begin();
    return error ? error : device < 0 || device >= (int)state.devices ? INVALID_DEVICE : SUCCESS;
}

API Error hipInit(u32 flags) { return done(flags ? INVALID_VALUE : begin()); }

int hip_version(void) {
    static int known;
    Dl_info info;
    if (known) return known;
    const char *name = dladdr((void *)hip_version, &info) && info.dli_fname ? info.dli_fname : "";
    return known = strstr(name, ".so.5") ? 50700000 : strstr(name, ".so.6") ? 60400000 : 70100000;
}

API Error hipRuntimeGetVersion(int *result) { return result ? (*result = hip_version(), done(SUCCESS)) : done(INVALID_VALUE); }
API Error hipDriverGetVersion(int *result) { return hipRuntimeGetVersion(result); }

API Error hipGetDeviceCount(int *count) {
    if (!count) return done(INVALID_VALUE);
    *count = 0;
    Error error = begin();
    if (error) return done(error);
    *count = (int)state.devices;
    return done(state.devices ? SUCCESS : NO_DEVICE);
}

API Error hipGetDevice(int *device) {
    Error error = begin();
    if (!error && !device) error = INVALID_VALUE;
    if (error) return done(error);
    *device = current_device;
    return done(SUCCESS);
}

API Error hipSetDevice(int device) {
    Error error = check_device(device);
    if (!error) current_device = device;
    return done(error);
}

API Error hipSetValidDevices(int *devices, int count) {
    Error error = begin();
    for (int i = 0; i < count && !error; i++) error = devices ? check_device(devices[i]) : INVALID_VALUE;
    return done(error);
}

API Error hipDeviceGet(int *result, int ordinal) {
    Error error = check_device(ordinal);
    if (!error && !result) error = INVALID_VALUE;
    if (!error) *result = ordinal;
    return done(error);
}

API Error hipDeviceSynchronize(void) {
    Error error = begin();
    if (error) return done(error);
    for (Stream *stream = state.device[current_device].streams; stream; stream = stream->following)
        if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    return done(wait_device(current_device));
}

extern Error hipStreamDestroy(void *stream);

API Error hipDeviceReset(void) {
    Error error = begin();
    if (error) return done(error);
    wait_device(current_device);
    for (Stream *stream = state.device[current_device].streams, *next; stream; stream = next) {
        next = stream->following;
        if (!stream->null && !stream->per_thread) hipStreamDestroy(stream);
    }
    release_all(current_device);
    pthread_mutex_lock(&lock);
    state.device[current_device].failure = SUCCESS;
    state.device[current_device].flags = SPIN;
    pthread_mutex_unlock(&lock);
    return done(SUCCESS);
}

// -- properties ----------------------------------------------------------------------------------

static Error properties(void *result, int device, bool old) {
    Error error = check_device(device);
    if (!error && !result) error = INVALID_VALUE;
    if (error) return done(error);
    const Device *found = &state.device[device];
    memcpy(result, old ? found->old_properties : found->properties, old ? found->old_bytes : found->bytes);
    return SUCCESS;
}

API Error hipGetDeviceProperties(void *result, int device) { return properties(result, device, true); }
API Error hipGetDevicePropertiesR0000(void *result, int device) { return properties(result, device, true); }
API Error hipGetDevicePropertiesR0600(void *result, int device) { return properties(result, device, false); }

static Error choose(int *device, const void *wanted) {
    Error error = begin();
    if (!error && (!device || !wanted)) error = INVALID_VALUE;
    if (!error) *device = 0;
    return done(error);
}

API Error hipChooseDevice(int *device, const void *wanted) { return choose(device, wanted); }
API Error hipChooseDeviceR0000(int *device, const void *wanted) { return choose(device, wanted); }
API Error hipChooseDeviceR0600(int *device, const void *wanted) { return choose(device, wanted); }

static bool attribute_of(int device, int attribute, int *value) {
    const Device *found = &state.device[device];
    for (u32 i = 0; i < found->attributes; i++) {
        int pair[2];
        memcpy(pair, (const u8 *)found->attribute + 8 * i, sizeof pair);
        if (pair[0] == attribute) return *value = pair[1], true;
    }
    return false;
}

API Error hipDeviceGetAttribute(int *value, int attribute, int device) {
    Error error = check_device(device);
    if (!error && !value) error = INVALID_VALUE;
    if (error) return done(error);
    return done(attribute_of(device, attribute, value) ? SUCCESS : INVALID_VALUE);
}

API Error hipDeviceGetName(char *name, int bytes, int device) {
    Error error = check_device(device);
    if (!error && (!name || bytes <= 0)) error = INVALID_VALUE;
    if (!error) snprintf(name, (size_t)bytes, "%.*s", NAME_BYTES, (const char *)state.device[device].properties);
    return done(error);
}

API Error hipDeviceGetUuid(void *uuid, int device) {
    Error error = check_device(device);
    if (!error && !uuid) error = INVALID_VALUE;
    if (!error) memcpy(uuid, state.device[device].properties + NAME_BYTES, 16);
    return done(error);
}

API Error hipDeviceTotalMem(size_t *bytes, int device) {
    Error error = check_device(device);
    if (!error && !bytes) error = INVALID_VALUE;
    if (!error) *bytes = state.device[device].memory;
    return done(error);
}

API Error hipDeviceComputeCapability(int *major, int *minor, int device) {
    enum { MAJOR = 23, MINOR = 61 };  // hipDeviceAttributeComputeCapabilityMajor, Minor
    Error error = check_device(device);
    if (!error && (!major || !minor)) error = INVALID_VALUE;
    if (error) return done(error);
    return done(attribute_of(device, MAJOR, major) && attribute_of(device, MINOR, minor) ? SUCCESS : INVALID_VALUE);
}

API Error hipDeviceGetPCIBusId(char *text, int bytes, int device) {
    Error error = check_device(device);
    if (!error && (!text || bytes <= 0)) error = INVALID_VALUE;
    if (!error && snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1) >= bytes) error = INVALID_VALUE;
    return done(error);
}

API Error hipDeviceGetByPCIBusId(int *device, const char *text) {
    u32 domain, bus, slot, function;
    Error error = begin();
    if (!error && (!device || !text)) error = INVALID_VALUE;
    if (error) return done(error);
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 || bus < 1 || bus > state.devices)
        return done(INVALID_VALUE);
    *device = (int)bus - 1;
    return done(SUCCESS);
}

// -- settings ------------------------------------------------------------------------------------

static size_t limits[LIMITS] = {1024, 1 << 20, 8 << 20};  // hipLimit_t: stack, printf's buffer, heap of malloc

API Error hipDeviceGetLimit(size_t *result, int which) {
    Error error = begin();
    if (!error && !result) error = INVALID_VALUE;
    if (!error && (which < 0 || which >= LIMITS)) error = UNSUPPORTED_LIMIT;
    if (!error) *result = limits[which];
    return done(error);
}

API Error hipDeviceSetLimit(int which, size_t value) {
    Error error = begin();
    if (!error && (which < 0 || which >= LIMITS)) error = UNSUPPORTED_LIMIT;
    if (!error) limits[which] = value;
    return done(error);
}

API Error hipSetDeviceFlags(u32 flags) {
    Error error = begin();
    bool known = !(flags & ~(SCHEDULE | MAP_HOST | RESIZE)) && __builtin_popcount(flags & SCHEDULE) <= 1;
    if (!error && !known) error = INVALID_VALUE;
    if (!error) state.device[current_device].flags = flags & SCHEDULE;
    return done(error);
}

API Error hipGetDeviceFlags(u32 *flags) {
    Error error = begin();
    if (!error && !flags) error = INVALID_VALUE;
    if (!error) *flags = state.device[current_device].flags;
    return done(error);
}

// These settings change nothing: no cache has a preference, and LDS banks are 4 bytes wide (1, hipSharedMemBankSizeFourByte).
static Error get_config(int *config, int value) { return config ? (*config = value, done(begin())) : done(INVALID_VALUE); }
static Error set_config(int config, int most) { return done(config < 0 || config > most ? INVALID_VALUE : begin()); }

API Error hipDeviceSetCacheConfig(int config) { return set_config(config, 3); }
API Error hipDeviceSetSharedMemConfig(int config) { return set_config(config, 2); }
API Error hipDeviceGetCacheConfig(int *config) { return get_config(config, 0); }
API Error hipDeviceGetSharedMemConfig(int *config) { return get_config(config, 1); }
API Error hipProfilerStart(void) { return done(begin()); }
API Error hipProfilerStop(void) { return done(begin()); }

// -- peers ---------------------------------------------------------------------------------------

API Error hipDeviceCanAccessPeer(int *can, int device, int peer) {
    Error error = check_device(device);
    if (!error) error = check_device(peer);
    if (!error && !can) error = INVALID_VALUE;
    if (!error) *can = device != peer;
    return done(error);
}

static Error set_peer(int peer, bool on) {
    Error error = check_device(peer);
    if (!error && peer == current_device) error = INVALID_DEVICE;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    bool *known = &state.device[current_device].peer[peer];
    if (*known == on) error = on ? PEER_ALREADY : PEER_NOT_ENABLED;
    else log_peer(on ? LOG_PEER : LOG_UNPEER, (u32)current_device, (u32)peer);
    *known = on;
    pthread_mutex_unlock(&lock);
    return done(error);
}

API Error hipDeviceEnablePeerAccess(int peer, u32 flags) { return flags ? done(INVALID_VALUE) : set_peer(peer, true); }
API Error hipDeviceDisablePeerAccess(int peer) { return set_peer(peer, false); }

API Error hipDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    Error error = check_device(device);
    if (!error) error = check_device(peer);
    if (!error && (!value || device == peer || attribute < 0 || attribute > 3)) error = INVALID_VALUE;
    if (!error) *value = attribute == 3 ? 0 : 1;  // access, atomics; no arrays
    return done(error);
}

API Error hipExtGetLinkTypeAndHopCount(int device, int peer, u32 *type, u32 *hops) {
    Error error = begin();
    if (!error && (!type || !hops || device == peer || device < 0 || peer < 0)) error = INVALID_VALUE;
    if (!error) error = check_device(device);
    if (!error) error = check_device(peer);
    if (!error) *type = 4, *hops = 1;  // HSA_AMD_LINK_INFO_TYPE_XGMI
    return done(error);
}

// -- functions by name ---------------------------------------------------------------------------

// version: the HIP version whose hipDeviceProp_t the program uses, such as 600.
API Error hipGetProcAddress(const char *name, void **function, int version, u64 flags, int *status) {
    (void)flags;
    if (!name || !*name || !function) return done(INVALID_VALUE);
    if (version >= 600 && !strcmp(name, "hipGetDeviceProperties")) name = "hipGetDevicePropertiesR0600";
    if (version >= 600 && !strcmp(name, "hipChooseDevice")) name = "hipChooseDeviceR0600";
    Dl_info info;
    void *self = dladdr((void *)hipGetProcAddress, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    *function = strncmp(name, "hip", 3) || !self ? NULL : dlsym(self, name);
    if (self) dlclose(self);
    if (status) *status = *function ? 0 : 1;
    return done(*function ? SUCCESS : INVALID_VALUE);
}

API Error hipGetDriverEntryPoint(const char *name, void **function, u64 flags, int *status) {
    return hipGetProcAddress(name, function, 600, flags, status);
}
