// Queries about a pointer: its allocation, its kind of memory, advice on it.
#include "memory.h"

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
    return done(SUCCESS);
}

API Error hipHostGetFlags(u32 *flags, void *pointer) {
    Allocation found;
    if (!flags || !pointer || !look_up(pointer, &found) || is_device_memory(found.memory)) return done(INVALID_VALUE);
    *flags = found.flags;
    return done(SUCCESS);
}

API Error hipMemGetInfo(size_t *available, size_t *total) {
    Error error = begin();
    if (error) return done(error);
    if (!available || !total) return done(INVALID_VALUE);
    pthread_mutex_lock(&lock);
    *total = state.device[current_device].memory;
    *available = *total - state.device[current_device].used;
    pthread_mutex_unlock(&lock);
    return done(SUCCESS);
}

API Error hipMemPtrGetInfo(void *pointer, size_t *bytes) {
    Allocation found;
    if (!bytes || !look_up(pointer, &found)) return done(INVALID_VALUE);
    *bytes = found.bytes;
    return done(SUCCESS);
}

API Error hipMemGetAddressRange(void **base, size_t *bytes, void *pointer) {
    Allocation found;
    if (!look_up(pointer, &found)) return done(NOT_FOUND);
    if (base) *base = (void *)found.address;
    if (bytes) *bytes = found.bytes;
    return done(SUCCESS);
}

// Returns the hipMemoryType; HIP 5 has other numbers.
static int memory_type(const Allocation *found) {
    if (hip_version() < 60000000)
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
        if (hip_version() < 60000000 || in_arena(pointer)) return done(INVALID_VALUE);
        *result = (PointerAttributes){.type = 0, .device = -2};  // hipMemoryTypeUnregistered, hipInvalidDeviceId
        return done(SUCCESS);
    }
    bool on_device = is_device_memory(found.memory);
    void *at = (void *)pointer;
    *result = (PointerAttributes){memory_type(&found), found.device, at, on_device ? NULL : at, found.memory == MANAGED_MEMORY,
                                  found.flags};
    return done(SUCCESS);
}

// Writes a hipPointer_attribute (numbers of hip_runtime_api.h) in the size that HIP writes; 0 if unknown.
static Error pointer_attribute(void *data, int attribute, void *pointer) {
    static const u8 BYTES[] = {[1] = 8, [2] = 4, [3] = 8, [4] = 8, [6] = 1, [7] = 4, [8] = 1, [9] = 4, [11] = 8, [12] = 4, [13] = 1,
                               [16] = 4};
    bool known = attribute > 0 && attribute < (int)sizeof BYTES && BYTES[attribute];
    if (!data) return INVALID_VALUE;
    if (!known) return attribute > 0 && attribute <= 17 ? NOT_SUPPORTED : INVALID_VALUE;
    Allocation found;
    u64 value = 0;
    bool there = look_up(pointer, &found), on_host = there && !is_device_memory(found.memory);
    Error error = there ? SUCCESS : INVALID_VALUE;
    if (attribute == 1) error = NOT_SUPPORTED;  // context
    else if (attribute == 4) value = on_host ? (u64)pointer : 0, error = on_host ? SUCCESS : INVALID_VALUE;
    else if (there)
        value = attribute == 2    ? (u64)memory_type(&found)
                : attribute == 3  ? (u64)pointer
                : attribute == 7  ? found.address >> 12  // a number that no other has
                : attribute == 8  ? found.memory == MANAGED_MEMORY
                : attribute == 9  ? (u64)found.device
                : attribute == 11 ? found.address
                : attribute == 12 ? found.bytes
                : attribute == 13 ? 1  // mapped
                : attribute == 16 ? found.flags
                                  : 0;  // copies do not wait for the host
    else if (attribute == 9) value = (u64)-2;  // hipInvalidDeviceId
    memcpy(data, &value, BYTES[attribute]);
    return error;
}

API Error hipPointerGetAttribute(void *data, int attribute, void *pointer) {
    return done(pointer ? pointer_attribute(data, attribute, pointer) : INVALID_VALUE);
}

API Error hipDrvPointerGetAttributes(u32 number, int *attributes, void **data, void *pointer) {
    if (!number || !attributes || !data || !pointer) return done(INVALID_VALUE);
    for (u32 i = 0; i < number; i++) pointer_attribute(data[i], attributes[i], pointer);
    return done(SUCCESS);
}

API Error hipPointerSetAttribute(const void *value, int attribute, void *pointer) {
    Allocation found;
    if (!value || !pointer || attribute != 6) return done(INVALID_VALUE);
    return done(look_up(pointer, &found) ? SUCCESS : INVALID_DEVICE_POINTER);
}
