// What is known of a pointer: its allocation, what kind of memory it is, advice on it.
#include "memory.h"

#include <dlfcn.h>

bool look_up(const void *pointer, Allocation *copy) {
    pthread_mutex_lock(&lock);
    Allocation *found = find_allocation(pointer);
    bool live = found && !found->freed;
    if (live) *copy = *found;
    pthread_mutex_unlock(&lock);
    return live;
}

API Error hipHostGetDevicePointer(void **result, void *pointer, u32 flags) {
    Error error = begin();
    Allocation found;
    if (error) return done(error);
    if (!result || !pointer || flags) return done(INVALID_VALUE);
    if (!look_up(pointer, &found) || is_device_memory(found.memory)) return done(INVALID_VALUE);
    *result = pointer;
    return SUCCESS;
}

API Error hipHostGetFlags(u32 *flags, void *pointer) {
    Allocation found;
    if (!flags || !pointer || !look_up(pointer, &found) || is_device_memory(found.memory)) return done(INVALID_VALUE);
    *flags = found.flags;
    return SUCCESS;
}

API Error hipMemGetInfo(size_t *available, size_t *total) {
    Error error = begin();
    if (error) return done(error);
    if (!available || !total) return done(INVALID_VALUE);
    pthread_mutex_lock(&lock);
    *total = state.device[current_device].memory;
    *available = *total - state.device[current_device].used;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API Error hipMemPtrGetInfo(void *pointer, size_t *bytes) {
    Allocation found;
    if (!bytes || !look_up(pointer, &found)) return done(INVALID_VALUE);
    *bytes = found.bytes;
    return SUCCESS;
}

API Error hipMemGetAddressRange(void **base, size_t *bytes, void *pointer) {
    Allocation found;
    if (!look_up(pointer, &found)) return done(NOT_FOUND);
    if (base) *base = (void *)found.address;
    if (bytes) *bytes = found.bytes;
    return SUCCESS;
}

// Whether the program was linked against HIP 5, whose hipMemoryType has other values.
static bool old_values(void) {
    Dl_info info;
    return dladdr((void *)old_values, &info) && info.dli_fname && strstr(info.dli_fname, ".so.5");
}

static int memory_type(const Allocation *found) {
    if (old_values())
        return is_device_memory(found->memory) ? 1 : found->memory == MANAGED_MEMORY ? 3 : 0;
    return is_device_memory(found->memory) ? 2 : found->memory == MANAGED_MEMORY ? 3 : 1;
}

typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
    int managed;
    u32 flags;
} PointerAttributes;

API Error hipPointerGetAttributes(PointerAttributes *result, const void *pointer) {
    Error error = begin();
    Allocation found;
    if (error) return done(error);
    if (!result || !pointer) return done(INVALID_VALUE);
    if (!look_up(pointer, &found)) {
        if (old_values() || in_arena(pointer)) return done(INVALID_VALUE);
        *result = (PointerAttributes){.type = 0, .device = -2};  // hipMemoryTypeUnregistered, hipInvalidDeviceId
        return SUCCESS;
    }
    bool on_device = is_device_memory(found.memory);
    void *at = (void *)pointer;
    *result = (PointerAttributes){memory_type(&found), found.device, at, on_device ? NULL : at, found.memory == MANAGED_MEMORY,
                                  found.flags};
    return SUCCESS;
}

// hipPointer_attribute, as numbered in hip_runtime_api.h.
static Error pointer_attribute(void *data, int attribute, void *pointer) {
    Allocation found;
    if (!data || !pointer) return INVALID_VALUE;
    if (!look_up(pointer, &found)) return INVALID_VALUE;
    switch (attribute) {
    case 1: *(void **)data = NULL; return NOT_SUPPORTED;  // context
    case 2: *(u32 *)data = (u32)memory_type(&found); return SUCCESS;
    case 3: *(void **)data = pointer; return SUCCESS;  // device pointer
    case 4:  // host pointer
        if (is_device_memory(found.memory)) return INVALID_VALUE;
        *(void **)data = pointer;
        return SUCCESS;
    case 6: *(u32 *)data = 0; return SUCCESS;  // synchronous copies
    case 7: *(u64 *)data = found.address; return SUCCESS;  // unique number
    case 8: *(u32 *)data = found.memory == MANAGED_MEMORY; return SUCCESS;
    case 9: *(u32 *)data = (u32)found.device; return SUCCESS;
    case 11: *(void **)data = (void *)found.address; return SUCCESS;
    case 12: *(size_t *)data = found.bytes; return SUCCESS;
    case 13: *(u32 *)data = 1; return SUCCESS;  // mapped
    default: return INVALID_VALUE;
    }
}

API Error hipPointerGetAttribute(void *data, int attribute, void *pointer) {
    return done(pointer_attribute(data, attribute, pointer));
}

API Error hipDrvPointerGetAttributes(u32 number, int *attributes, void **data, void *pointer) {
    if (!number || !attributes || !data) return done(INVALID_VALUE);
    for (u32 i = 0; i < number; i++)
        if (pointer_attribute(data[i], attributes[i], pointer) == INVALID_VALUE && data[i]) *(u32 *)data[i] = 0;
    return SUCCESS;
}

API Error hipPointerSetAttribute(const void *value, int attribute, void *pointer) {
    Allocation found;
    return done(value && attribute == 6 && look_up(pointer, &found) ? SUCCESS : INVALID_VALUE);
}

// -- advice on managed memory changes nothing here -----------------------------------------------

static Error advised(const void *pointer, size_t bytes, int device) {
    Allocation found;
    bool known = device >= -1 && device < (int)state.devices;
    return !bytes || !known ? (bytes ? INVALID_DEVICE : INVALID_VALUE) : look_up(pointer, &found) ? SUCCESS : INVALID_VALUE;
}

API Error hipMemPrefetchAsync(const void *pointer, size_t bytes, int device, void *stream) {
    (void)stream;
    return done(advised(pointer, bytes, device));
}
API Error hipMemAdvise(const void *pointer, size_t bytes, int advice, int device) {
    (void)advice;
    return done(advised(pointer, bytes, device));
}

API Error hipMemRangeGetAttribute(void *data, size_t bytes, int attribute, const void *pointer, size_t range) {
    Allocation found;
    if (!data || !bytes || !range || !look_up(pointer, &found)) return done(INVALID_VALUE);
    if (attribute == 1 && bytes == 4) *(int *)data = 0;  // read mostly
    else memset(data, 0xff, bytes);  // no device: -2 and -1 are both told as none
    return SUCCESS;
}
