// Memory in the order of a stream: it is there at once, and freed when the stream comes to it. A pool is where it is counted.
#include "internal.h"

typedef struct Pool {
    Handle handle;
    int device;
    u64 threshold, used, used_high, reserved_high;
    int reuse[3];
} Pool;

static Pool *pool_of(int device) {
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[device];
    if (!owner->pool && (owner->pool = make_handle(POOL, sizeof(Pool)))) owner->pool->device = device;
    Pool *found = owner->pool;
    pthread_mutex_unlock(&lock);
    return found;
}

typedef struct {
    Operation operation;
    void *pointer;
    void *site;
} Release;

static Error run_release(Operation *operation) {
    Release *it = (Release *)operation;
    return release(it->pointer, DEVICE_MEMORY, MANAGED_MEMORY, it->site, "hipFreeAsync");
}

static Error from_pool(void **result, size_t bytes, int device, void *stream, void *site) {
    Stream *found;
    Error error = begin();
    if (!error) error = find_stream(stream, &found);
    if (error) return done(error);
    if (!result) return done(INVALID_VALUE);
    *result = NULL;
    if (!bytes) return SUCCESS;
    return done(allocate(DEVICE_MEMORY, device < 0 ? found->device : device, bytes, 0, site, result));
}

API Error hipMallocAsync(void **result, size_t bytes, void *stream) { return from_pool(result, bytes, -1, stream, CALLER); }

API Error hipMallocFromPoolAsync(void **result, size_t bytes, Pool *pool, void *stream) {
    Error error = begin();
    if (error) return done(error);
    if (!is_handle(pool, POOL)) return done(INVALID_VALUE);
    return from_pool(result, bytes, pool->device, stream, CALLER);
}

API Error hipFreeAsync(void *pointer, void *stream) {
    Stream *found;
    Error error = begin();
    if (!error) error = find_stream(stream, &found);
    if (error) return done(error);
    Allocation known;
    if (!pointer || !look_up(pointer, &known) || known.address != (u64)pointer)
        return done(pointer ? release(pointer, DEVICE_MEMORY, MANAGED_MEMORY, CALLER, "hipFreeAsync") : INVALID_VALUE);
    Release *operation = make_operation(sizeof *operation, run_release);
    if (!operation) return done(OUT_OF_MEMORY);
    operation->pointer = pointer, operation->site = CALLER;
    return done(submit(found, &operation->operation));
}

API Error hipDeviceGetDefaultMemPool(Pool **pool, int device) {
    Error error = begin();
    if (error) return done(error);
    if (!pool) return done(INVALID_VALUE);
    if (device < 0 || device >= (int)state.devices) return done(INVALID_DEVICE);
    *pool = pool_of(device);
    return done(*pool ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipDeviceGetMemPool(Pool **pool, int device) { return hipDeviceGetDefaultMemPool(pool, device); }

API Error hipDeviceSetMemPool(int device, Pool *pool) {
    Error error = begin();
    if (error) return done(error);
    if (device < 0 || device >= (int)state.devices) return done(INVALID_DEVICE);
    if (!is_handle(pool, POOL)) return done(INVALID_VALUE);
    state.device[device].pool = pool;
    return SUCCESS;
}

typedef struct {
    int allocation, handles;
    struct {
        int type, id;
    } location;
} PoolProperties;  // the beginning of hipMemPoolProps

API Error hipMemPoolCreate(Pool **pool, const PoolProperties *properties) {
    Error error = begin();
    if (error) return done(error);
    if (!pool || !properties || properties->allocation != 1 || properties->location.type != 1) return done(INVALID_VALUE);
    if (properties->location.id < 0 || properties->location.id >= (int)state.devices) return done(INVALID_VALUE);
    *pool = make_handle(POOL, sizeof **pool);
    if (*pool) (*pool)->device = properties->location.id;
    return done(*pool ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipMemPoolDestroy(Pool *pool) {
    if (!is_handle(pool, POOL)) return done(INVALID_VALUE);
    if (state.device[pool->device].pool == pool) state.device[pool->device].pool = NULL;
    end_handle(pool, POOL);
    return SUCCESS;
}

API Error hipMemPoolTrimTo(Pool *pool, size_t keep) {
    (void)keep;
    return done(is_handle(pool, POOL) ? SUCCESS : INVALID_VALUE);
}

// hipMemPoolAttr: 1 to 3 how memory is used again, 4 the threshold, 5 to 8 bytes reserved and used, now and at most.
API Error hipMemPoolGetAttribute(Pool *pool, int attribute, void *value) {
    if (!is_handle(pool, POOL) || !value) return done(INVALID_VALUE);
    u64 used = state.device[pool->device].used;
    if (used > pool->used_high) pool->used_high = used;
    if (attribute >= 1 && attribute <= 3) *(int *)value = !pool->reuse[attribute - 1];
    else if (attribute == 4) *(u64 *)value = pool->threshold;
    else if (attribute == 5 || attribute == 7) *(u64 *)value = used;
    else if (attribute == 6 || attribute == 8) *(u64 *)value = pool->used_high;
    else return done(INVALID_VALUE);
    return SUCCESS;
}

API Error hipMemPoolSetAttribute(Pool *pool, int attribute, void *value) {
    if (!is_handle(pool, POOL) || !value) return done(INVALID_VALUE);
    if (attribute >= 1 && attribute <= 3) pool->reuse[attribute - 1] = !*(int *)value;
    else if (attribute == 4) pool->threshold = *(u64 *)value;
    else if ((attribute == 6 || attribute == 8) && *(u64 *)value == 0) pool->used_high = state.device[pool->device].used;
    else return done(INVALID_VALUE);
    return SUCCESS;
}

typedef struct {
    struct {
        int type, id;
    } location;
    int access;
} PoolAccess;

API Error hipMemPoolSetAccess(Pool *pool, const PoolAccess *access, size_t number) {
    return done(is_handle(pool, POOL) && (access || !number) ? SUCCESS : INVALID_VALUE);
}

API Error hipMemPoolGetAccess(int *flags, Pool *pool, void *location) {
    if (!flags || !location || !is_handle(pool, POOL)) return done(INVALID_VALUE);
    *flags = 3;  // read and write
    return SUCCESS;
}
