// Memory in the order of a stream: it exists at once, and the stream frees it in its order. Pools count this memory.
#include "internal.h"

typedef struct Pool {
    Handle handle;
    int device;
    u64 limit, threshold;  // bytes; limit 0: no limit
    u64 used, used_high, reserved, reserved_high;
    int no_reuse[3];
    bool is_default;
} Pool;

// Keeps at most this many bytes reserved, but not less than are used.
static void keep(Pool *pool, u64 bytes) {
    if (pool->reserved > bytes) pool->reserved = bytes;
    if (pool->reserved < pool->used) pool->reserved = pool->used;
}

void count_release(Pool *pool, u64 bytes) {
    pool->used -= bytes;
    keep(pool, pool->threshold);
}

void count_allocation(Pool *pool, u64 bytes) {
    pool->used += bytes;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    keep(pool, UINT64_MAX);
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
}

static Pool *pool_of(int device) {
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[device];
    if (!owner->default_pool && (owner->default_pool = make_handle(POOL, sizeof(Pool))))
        owner->default_pool->device = device, owner->default_pool->is_default = true;
    if (!owner->pool) owner->pool = owner->default_pool;
    Pool *found = owner->pool;
    pthread_mutex_unlock(&lock);
    return found;
}

// Returns the pool that counts the memory of graph nodes; NULL if there is no memory left.
static Pool *graph_pool(int device) {
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[device];
    if (!owner->graph_pool && (owner->graph_pool = make_handle(POOL, sizeof(Pool))))
        owner->graph_pool->device = device, owner->graph_pool->is_default = true, owner->graph_pool->threshold = UINT64_MAX;
    Pool *found = owner->graph_pool;
    pthread_mutex_unlock(&lock);
    return found;
}

void count_graph_memory(const void *pointer, int device) {
    Pool *pool = graph_pool(device);
    pthread_mutex_lock(&lock);
    Allocation *found = pool ? find_allocation(pointer) : NULL;
    if (found) found->pool = pool, count_allocation(pool, found->bytes);
    pthread_mutex_unlock(&lock);
}

Error run_release(Operation *operation) {
    PoolOperation *it = (PoolOperation *)operation;
    return release(it->pointer, DEVICE_MEMORY, MANAGED_MEMORY, it->site, "hipFreeAsync");
}

// Does nothing: the memory is there when the call returns. Checked mode looks for uses of it that do not follow the allocation.
Error run_allocation(Operation *operation) { return (void)operation, SUCCESS; }

static Error submit_pool_operation(Stream *stream, void *pointer, void *site, Error (*run)(Operation *)) {
    PoolOperation *made = make_operation(sizeof *made, run);
    if (!made) return OUT_OF_MEMORY;
    made->pointer = pointer, made->site = site;
    return submit(stream, &made->operation);
}

// pool: NULL means the pool of the stream's device.
static Error from_pool(void **result, size_t bytes, Pool *pool, void *stream, void *site, const char *call) {
    Stream *found;
    Error error = begin();
    if (!error && find_stream(stream, &found)) error = INVALID_HANDLE;
    if (!error && !result) error = INVALID_VALUE;
    if (!error && !pool && !(pool = pool_of(found->device))) error = OUT_OF_MEMORY;
    if (error) return ended(call, error);
    *result = NULL;
    if (!bytes) return SUCCESS;
    pthread_mutex_lock(&lock);
    bool fits = !pool->limit || (bytes <= pool->limit && pool->used <= pool->limit - bytes);
    pthread_mutex_unlock(&lock);
    error = fits ? allocate(DEVICE_MEMORY, pool->device, bytes, 0, site, result) : OUT_OF_MEMORY;
    if (error) return ended(call, error);
    pthread_mutex_lock(&lock);
    find_allocation(*result)->pool = pool;
    count_allocation(pool, bytes);
    pthread_mutex_unlock(&lock);
    if (found->capture) return ended(call, capture_allocation(found, *result));
    return ended(call, state.checked ? submit_pool_operation(found, *result, site, run_allocation) : SUCCESS);
}

API Error hipMallocAsync(void **result, size_t bytes, void *stream) {
    return from_pool(result, bytes, NULL, stream, CALLER, __func__);
}

API Error hipMallocFromPoolAsync(void **result, size_t bytes, Pool *pool, void *stream) {
    Error error = begin();
    if (error) return done(error);
    if (!is_handle(pool, POOL)) return done(INVALID_VALUE);
    return from_pool(result, bytes, pool, stream, CALLER, __func__);
}

API Error hipFreeAsync(void *pointer, void *stream) {
    Stream *found;
    Error error = begin();
    if (!error && find_stream(stream, &found)) error = INVALID_HANDLE;
    if (error) return done(error);
    Allocation known;
    if (!pointer || !look_up(pointer, &known) || known.address != (u64)pointer)
        return done(pointer ? release(pointer, DEVICE_MEMORY, MANAGED_MEMORY, CALLER, "hipFreeAsync") : INVALID_VALUE);
    if (found->capture) return done(capture_free(found, pointer, CALLER));
    return done(submit_pool_operation(found, pointer, CALLER, run_release));
}

API Error hipDeviceGetDefaultMemPool(Pool **pool, int device) {
    Error error = begin();
    if (error) return done(error);
    if (!pool) return done(INVALID_VALUE);
    if (device < 0 || device >= (int)state.devices) return done(INVALID_DEVICE);
    *pool = pool_of(device) ? state.device[device].default_pool : NULL;
    return done(*pool ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipDeviceGetMemPool(Pool **pool, int device) {
    Error error = begin();
    if (error) return done(error);
    if (!pool || check_device(device)) return done(INVALID_VALUE);
    *pool = pool_of(device);
    return done(*pool ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipDeviceSetMemPool(int device, Pool *pool) {
    Error error = begin();
    if (error) return done(error);
    if (check_device(device) || !is_handle(pool, POOL)) return done(INVALID_VALUE);
    if (pool->device != device) return done(INVALID_DEVICE);
    state.device[device].pool = pool;
    return done(SUCCESS);
}

typedef struct {
    int allocation, handles;
    struct {
        int type, id;
    } location;
    void *security;
    size_t limit;
} PoolProperties;  // the beginning of hipMemPoolProps

API Error hipMemPoolCreate(Pool **pool, const PoolProperties *properties) {
    Error error = begin();
    if (error) return done(error);
    if (!pool || !properties || properties->allocation != 1 || properties->location.type != 1) return done(INVALID_VALUE);
    if (properties->location.id < 0 || properties->location.id >= (int)state.devices) return done(INVALID_VALUE);
    *pool = make_handle(POOL, sizeof **pool);
    if (*pool) (*pool)->device = properties->location.id, (*pool)->limit = properties->limit;
    return done(*pool ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipMemPoolDestroy(Pool *pool) {
    if (!is_handle(pool, POOL) || pool->is_default) return done(INVALID_VALUE);
    if (state.device[pool->device].pool == pool) state.device[pool->device].pool = NULL;
    end_handle(pool, POOL);
    return done(SUCCESS);
}

API Error hipMemPoolTrimTo(Pool *pool, size_t bytes) {
    if (!is_handle(pool, POOL)) return done(INVALID_VALUE);
    pthread_mutex_lock(&lock);
    keep(pool, bytes);
    pthread_mutex_unlock(&lock);
    return done(SUCCESS);
}

// hipMemPoolAttr: 1 to 3 rules of reuse, 4 threshold, 5 to 8 bytes reserved and used, each now and at most.
static u64 *figure(Pool *pool, int attribute) {
    u64 *all[] = {&pool->threshold, &pool->reserved, &pool->reserved_high, &pool->used, &pool->used_high};
    return attribute >= 4 && attribute <= 8 ? all[attribute - 4] : NULL;
}

API Error hipMemPoolGetAttribute(Pool *pool, int attribute, void *value) {
    if (!is_handle(pool, POOL) || !value) return done(INVALID_VALUE);
    u64 *found = figure(pool, attribute);
    if (found) *(u64 *)value = *found;
    else if (attribute >= 1 && attribute <= 3) *(int *)value = !pool->no_reuse[attribute - 1];
    else return done(INVALID_VALUE);
    return done(SUCCESS);
}

// A program may set the threshold and the rules of reuse, and reset a maximum to the present value.
API Error hipMemPoolSetAttribute(Pool *pool, int attribute, void *value) {
    if (!is_handle(pool, POOL) || !value) return done(INVALID_VALUE);
    pthread_mutex_lock(&lock);
    bool fine = true;
    if (attribute >= 1 && attribute <= 3) pool->no_reuse[attribute - 1] = !*(int *)value;
    else if (attribute == 4) pool->threshold = *(u64 *)value;
    else if (attribute == 6 && *(u64 *)value == 0) pool->reserved_high = pool->reserved;
    else if (attribute == 8 && *(u64 *)value == 0) pool->used_high = pool->used;
    else fine = false;
    pthread_mutex_unlock(&lock);
    return done(fine ? SUCCESS : INVALID_VALUE);
}

// Maps a hipGraphMemAttributeType (bytes used now, at most, reserved now, at most) to the attribute of a pool.
static Pool *graph_figure(int device, int attribute, int *of_pool) {
    static const int SAME[] = {7, 8, 5, 6};
    if (attribute < 0 || attribute > 3) return NULL;
    *of_pool = SAME[attribute];
    return graph_pool(device);
}

API Error hipDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    Error error = check_device(device);
    if (error) return done(error);
    Pool *pool = graph_figure(device, attribute, &attribute);
    return pool ? hipMemPoolGetAttribute(pool, attribute, value) : done(INVALID_VALUE);
}

API Error hipDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
    Error error = check_device(device);
    if (error) return done(error);
    Pool *pool = graph_figure(device, attribute, &attribute);
    return pool ? hipMemPoolSetAttribute(pool, attribute, value) : done(INVALID_VALUE);
}

API Error hipDeviceGraphMemTrim(int device) {
    Error error = check_device(device);
    Pool *pool = error ? NULL : graph_pool(device);
    return pool ? hipMemPoolTrimTo(pool, 0) : done(error ? error : OUT_OF_MEMORY);
}

typedef struct {
    int type, id;
} Location;
typedef struct {
    Location location;
    u32 access;
} PoolAccess;

static bool is_device(Location location) { return location.type == 1 && location.id >= 0 && location.id < (int)state.devices; }

// Every device accesses a pool's memory by the rules for device memory. A pool's own device cannot lose access.
API Error hipMemPoolSetAccess(Pool *pool, const PoolAccess *access, size_t number) {
    bool fine = is_handle(pool, POOL) && access && number && number <= state.devices;
    for (size_t i = 0; i < number && fine; i++) {
        if (access[i].location.type == 1 && !is_device(access[i].location)) return done(INVALID_DEVICE);
        fine = is_device(access[i].location) && access[i].access <= 3 && (access[i].access || access[i].location.id != pool->device);
    }
    return done(fine ? SUCCESS : INVALID_VALUE);
}

API Error hipMemPoolGetAccess(int *flags, Pool *pool, const Location *location) {
    if (!flags || !location || !is_handle(pool, POOL) || !is_device(*location)) return done(INVALID_VALUE);
    *flags = 3;  // read and write
    return done(SUCCESS);
}
