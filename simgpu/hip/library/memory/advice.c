// Advice on memory, and prefetches. The library keeps both for each whole allocation. They change nothing else.
#include "internal.h"

enum { CPU = -1, NOBODY = -2 };  // hipCpuDeviceId, hipInvalidDeviceId
enum { READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, PREFETCHED, COHERENCY = 100 };  // hipMemRangeAttribute
// hipMemoryAdvise
enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED, UNSET_ACCESSED, SET_COARSE = 100, UNSET_COARSE };

static bool is_place(int device) { return device >= CPU && device < (int)state.devices; }

// Returns the allocation that contains a range; NULL: none. Hold the lock.
static Allocation *whole(const void *pointer, size_t bytes) {
    Allocation *found = find_allocation(pointer);
    return found && !found->freed && bytes <= found->address + found->bytes - (u64)pointer ? found : NULL;
}

// Returns the managed allocation that contains a range; NULL: none. Hold the lock.
static Allocation *advised(const void *pointer, size_t bytes) {
    Allocation *found = whole(pointer, bytes);
    return found && found->memory == MANAGED_MEMORY ? found : NULL;
}

static Error advise(const void *pointer, size_t bytes, int advice, int device) {
    bool known = (advice >= SET_READ_MOSTLY && advice <= UNSET_ACCESSED) || advice == SET_COARSE || advice == UNSET_COARSE;
    if (advice > UNSET_READ_MOSTLY && !is_place(device)) return INVALID_DEVICE;
    if (!known || !pointer || !bytes) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *found = advised(pointer, bytes);
    if (found) {
        Advice *kept = &found->advice;
        u32 bit = 1u << (device + 1);
        switch (advice) {
        case SET_READ_MOSTLY: kept->read_mostly = true; break;
        case UNSET_READ_MOSTLY: kept->read_mostly = false; break;
        case SET_PREFERRED: kept->preferred = device; break;
        case UNSET_PREFERRED: kept->preferred = NOBODY; break;
        case SET_ACCESSED: kept->accessed |= bit; break;
        case UNSET_ACCESSED: kept->accessed &= ~bit; break;
        default: kept->coarse = advice == SET_COARSE;
        }
    }
    pthread_mutex_unlock(&lock);
    return found ? SUCCESS : INVALID_VALUE;
}

API Error hipMemAdvise(const void *pointer, size_t bytes, int advice, int device) {
    Error error = begin();
    return done(error ? error : advise(pointer, bytes, advice, device));
}

API Error hipMemPrefetchAsync(const void *pointer, size_t bytes, int device, void *given) {
    WITH_STREAM(given, stream)
    if (!pointer || !bytes) return done(INVALID_VALUE);
    pthread_mutex_lock(&lock);
    Allocation *known = find_allocation(pointer), *found = whole(pointer, bytes);
    if (known && !known->freed && !found) error = INVALID_VALUE;
    else if (!is_place(device)) error = INVALID_DEVICE;
    else if (!found) error = NOT_SUPPORTED;  // the host's own memory
    else found->advice.prefetched = device;
    pthread_mutex_unlock(&lock);
    return done(error);
}

// HIP 7 names a place by its kind; all places that are no device are the host.
typedef struct {
    int kind, id;
} Place;
static int device_at(Place place) { return place.kind == 1 ? place.id : place.kind > 1 ? CPU : NOBODY; }

API Error hipMemAdvise_v2(const void *pointer, size_t bytes, int advice, Place place) {
    return hipMemAdvise(pointer, bytes, advice, device_at(place));
}

API Error hipMemPrefetchAsync_v2(const void *pointer, size_t bytes, Place place, u32 flags, void *stream) {
    return flags ? done(INVALID_VALUE) : hipMemPrefetchAsync(pointer, bytes, device_at(place), stream);
}

// Lists the devices that access the memory, then fills up with NOBODY.
static void list_accessors(u32 accessed, int *list, size_t room) {
    size_t count = 0;
    for (int device = CPU; device < (int)state.devices; device++)
        if (accessed >> (device + 1) & 1 && count < room) list[count++] = device;
    while (count < room) list[count++] = NOBODY;
}

static Error range_attribute(void *data, size_t bytes, int attribute, const Advice *kept) {
    if (!data || !bytes || bytes % 4 || (attribute != ACCESSED_BY && bytes != 4)) return INVALID_VALUE;
    int *value = data;
    switch (attribute) {
    case READ_MOSTLY: *value = kept->read_mostly; break;
    case PREFERRED: *value = kept->preferred; break;
    case ACCESSED_BY: list_accessors(kept->accessed, value, bytes / 4); break;
    case PREFETCHED: *value = kept->prefetched; break;
    case COHERENCY: *value = kept->coarse; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

static Error advice_on(const void *pointer, size_t bytes, int attribute, Advice *kept) {
    if (!pointer || !bytes) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *found = whole(pointer, bytes);
    if (found) *kept = found->advice, kept->coarse = kept->coarse || is_device_memory(found->memory);
    bool managed = found && found->memory == MANAGED_MEMORY;
    pthread_mutex_unlock(&lock);
    return managed || (found && attribute == COHERENCY) ? SUCCESS : INVALID_VALUE;
}

API Error hipMemRangeGetAttribute(void *data, size_t bytes, int attribute, const void *pointer, size_t range) {
    Advice kept;
    Error error = begin();
    if (!error) error = advice_on(pointer, range, attribute, &kept);
    return done(error ? error : range_attribute(data, bytes, attribute, &kept));
}

API Error hipMemRangeGetAttributes(void **data, size_t *bytes, int *attributes, size_t count, const void *pointer, size_t range) {
    Advice kept;
    Error error = begin();
    if (!error && (!data || !bytes || !attributes || !count)) error = INVALID_VALUE;
    for (size_t i = 0; i < count && !error; i++) {
        error = advice_on(pointer, range, attributes[i], &kept);
        if (!error) error = range_attribute(data[i], bytes[i], attributes[i], &kept);
    }
    return done(error);
}
