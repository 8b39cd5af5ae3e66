// The arena: one file in memory, mapped here at ARENA and by the server as well, so that pointers are equal on both sides and
// copies are the program's own. Addresses are never used twice and lie a gap apart: an access past an allocation finds nothing.
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GAP (64ull << 10)
#define PAGE 4096ull
#define HOST_BYTES (1ull << 47)  // of the file behind the arena: pages of registered memory, each at its own address
#define FIXED 0x100000  // MAP_FIXED_NOREPLACE

static int arena = -1;
static u64 next = ARENA;

// Allocations of the arena by address, which is also the order in which they were made.
static Allocation *table;
static size_t count, room;
static u64 made_by_kind[5];

typedef struct Registration {
    Allocation allocation;
    struct Registration *next;
} Registration;
static Registration *registered;

static u64 up(u64 value, u64 to) { return (value + to - 1) / to * to; }

bool map_arena(int *descriptor) {
    static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mapping);
    if (arena < 0) {
        int made = (int)syscall(SYS_memfd_create, "simgpu-arena", 1u);
        if (made >= 0 && ftruncate(made, (off_t)(ARENA_BYTES + HOST_BYTES)) == 0) {
            void *got = mmap((void *)ARENA, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | FIXED, made, 0);
            if (got == (void *)ARENA) arena = made;
            else if (got != MAP_FAILED) munmap(got, ARENA_BYTES);
        }
        if (arena < 0 && made >= 0) close(made);
    }
    pthread_mutex_unlock(&mapping);
    *descriptor = arena;
    return arena >= 0;
}

bool in_arena(const void *pointer) { return (u64)pointer >= ARENA && (u64)pointer < ARENA + ARENA_BYTES; }

// The addresses of a call and of what called it, from the program's own on.
static void call_sites(void *site, void **sites) {
    enum { DEEP = 24 };
    void *frames[DEEP];
    int found = site ? backtrace(frames, DEEP) : 0, at = 0;
    while (at < found && frames[at] != site) at++;
    for (int i = 0; i < SITES; i++) sites[i] = at + i < found ? frames[at + i] : NULL;
    if (at == found) sites[0] = site;
}

static Allocation *added(u64 address, u64 bytes, Memory memory, int device) {
    if (count == room) {
        size_t wanted = room ? 2 * room : 1024;
        Allocation *grown = realloc(table, wanted * sizeof *grown);
        if (!grown) return NULL;
        table = grown, room = wanted;
    }
    Allocation *made = &table[count++];
    *made = (Allocation){.address = address, .bytes = bytes, .memory = memory, .device = device, .number = ++made_by_kind[memory]};
    return made;
}

Error allocate(Memory memory, int device, size_t bytes, u32 flags, void *site, void **result) {
    void *sites[SITES];
    call_sites(site, sites);
    pthread_mutex_lock(&lock);
    u64 span = up(bytes, PAGE) + GAP;
    Device *owner = &state.device[device];
    bool fits = next + span <= ARENA + ARENA_BYTES - MODULE_BYTES && bytes < ARENA_BYTES;
    if (memory == DEVICE_MEMORY) fits = fits && owner->used + bytes <= owner->memory;
    Allocation *made = fits ? added(next, bytes, memory, device) : NULL;
    if (made) {
        made->flags = flags;
        next += span;
        if (memory == DEVICE_MEMORY) {
            owner->used += bytes;
            if (state.shadow) memset(state.shadow + (made->address - ARENA), 0xff, bytes);
        }
        log_event(LOG_ALLOCATE, (u32)device, memory, made->address, bytes, made->number, sites);
        *result = (void *)made->address;
    }
    pthread_mutex_unlock(&lock);
    return made ? SUCCESS : OUT_OF_MEMORY;
}

void add_module_memory(u64 address, u64 bytes, int device) {
    Registration *made = calloc(1, sizeof *made);
    if (!made) return;
    pthread_mutex_lock(&lock);
    made->allocation = (Allocation){.address = address, .bytes = bytes, .memory = MODULE_MEMORY, .device = device};
    made->next = registered, registered = made;
    pthread_mutex_unlock(&lock);
}

Allocation *find_allocation(const void *pointer) {
    u64 address = (u64)pointer;
    if (in_arena(pointer)) {
        size_t low = 0, high = count;  // the last one that begins at the address or below
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (table[middle].address <= address) low = middle + 1;
            else high = middle;
        }
        if (low && address < table[low - 1].address + (table[low - 1].bytes ? table[low - 1].bytes : 1)) return &table[low - 1];
    }
    for (Registration *at = registered; at; at = at->next)
        if (address >= at->allocation.address && address < at->allocation.address + at->allocation.bytes) return &at->allocation;
    return NULL;
}

static void forget(Allocation *allocation) {
    u64 offset = allocation->address - ARENA, bytes = up(allocation->bytes, PAGE);
    allocation->freed = true;
    if (allocation->memory == DEVICE_MEMORY) state.device[allocation->device].used -= allocation->bytes;
    log_event(LOG_FREE, (u32)allocation->device, allocation->memory, allocation->address, allocation->bytes, allocation->number,
              NULL);
    if (!bytes) return;
    madvise((void *)allocation->address, bytes, MADV_REMOVE);
    if (state.shadow) madvise(state.shadow + offset, bytes, MADV_REMOVE);
}

static const char *const NAMES[] = {"device memory", "pinned host memory", "managed memory", "registered memory", "a module"};

Error release(void *pointer, Memory memory, Memory other, void *site, const char *call) {
    pthread_mutex_lock(&lock);
    Allocation *found = find_allocation(pointer);
    Allocation seen = found ? *found : (Allocation){0};
    bool fits = found && found->address == (u64)pointer && !found->freed && (found->memory == memory || found->memory == other);
    if (fits) forget(found);
    pthread_mutex_unlock(&lock);
    if (fits) return SUCCESS;
    if (!found) finding("invalid-free", site, "%s(%p): no allocation begins there", call, pointer);
    else if (seen.freed)
        finding("double-free", site, "%s(%p): @%llx was freed before", call, pointer, (unsigned long long)seen.address);
    else if (seen.address != (u64)pointer)
        finding("invalid-free", site, "%s(%p): %llu bytes inside @%llx", call, pointer,
                (unsigned long long)((u64)pointer - seen.address), (unsigned long long)seen.address);
    else finding("invalid-free", site, "%s(%p): @%llx is %s", call, pointer, (unsigned long long)seen.address, NAMES[seen.memory]);
    return INVALID_VALUE;
}

void release_all(int device) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (!table[i].freed && table[i].device == device && table[i].memory != HOST_MEMORY) forget(&table[i]);
    pthread_mutex_unlock(&lock);
}

// -- device memory -------------------------------------------------------------------------------

static Error new_memory(Memory memory, void **result, size_t bytes, u32 flags, void *site) {
    Error error = begin();
    if (error) return done(error);
    if (!result) return done(INVALID_VALUE);
    *result = NULL;
    return bytes ? done(allocate(memory, current_device, bytes, flags, site, result)) : SUCCESS;
}

API Error hipMalloc(void **result, size_t bytes) { return new_memory(DEVICE_MEMORY, result, bytes, 0, CALLER); }

API Error hipExtMallocWithFlags(void **result, size_t bytes, u32 flags) {
    return new_memory(DEVICE_MEMORY, result, bytes, flags, CALLER);
}

API Error hipMallocManaged(void **result, size_t bytes, u32 flags) {
    if (flags & ~3u || flags == 3) return done(INVALID_VALUE);
    if (!bytes) return done(INVALID_VALUE);
    return new_memory(MANAGED_MEMORY, result, bytes, flags ? flags : 1, CALLER);
}

API Error hipHostMalloc(void **result, size_t bytes, u32 flags) { return new_memory(HOST_MEMORY, result, bytes, flags, CALLER); }
API Error hipHostAlloc(void **result, size_t bytes, u32 flags) { return new_memory(HOST_MEMORY, result, bytes, flags, CALLER); }
API Error hipExtHostAlloc(void **result, size_t bytes, u32 flags) { return new_memory(HOST_MEMORY, result, bytes, flags, CALLER); }
API Error hipMallocHost(void **result, size_t bytes) { return new_memory(HOST_MEMORY, result, bytes, 0, CALLER); }
API Error hipMemAllocHost(void **result, size_t bytes) { return new_memory(HOST_MEMORY, result, bytes, 0, CALLER); }

API Error hipMallocPitch(void **result, size_t *pitch, size_t width, size_t height) {
    if (!pitch || !result) return done(INVALID_VALUE);
    *pitch = up(width, 256);
    return new_memory(DEVICE_MEMORY, result, *pitch * height, 0, CALLER);
}

API Error hipMemAllocPitch(void **result, size_t *pitch, size_t width, size_t height, u32 element) {
    if (!pitch || !result || !width || !height || (element != 4 && element != 8 && element != 16)) return done(INVALID_VALUE);
    *pitch = up(width, 256);
    return new_memory(DEVICE_MEMORY, result, *pitch * height, 0, CALLER);
}

API Error hipMalloc3D(PitchedPointer *result, Extent extent) {
    if (!result) return done(INVALID_VALUE);
    *result = (PitchedPointer){NULL, up(extent.width, 256), extent.width, extent.height};
    return new_memory(DEVICE_MEMORY, &result->pointer, result->pitch * extent.height * extent.depth, 0, CALLER);
}

static Error free_memory(void *pointer, Memory memory, Memory other, void *site, const char *call) {
    Error error = begin();
    if (error || !pointer) return done(error);
    for (u32 i = 0; i < state.devices; i++) wait_device((int)i);  // what uses it ends first
    return done(release(pointer, memory, other, site, call));
}

API Error hipFree(void *pointer) { return free_memory(pointer, DEVICE_MEMORY, MANAGED_MEMORY, CALLER, "hipFree"); }
API Error hipHostFree(void *pointer) { return free_memory(pointer, HOST_MEMORY, HOST_MEMORY, CALLER, "hipHostFree"); }
API Error hipFreeHost(void *pointer) { return free_memory(pointer, HOST_MEMORY, HOST_MEMORY, CALLER, "hipFreeHost"); }

// -- the program's own memory --------------------------------------------------------------------

typedef struct {
    u64 from, bytes;
    bool in;
    bool fine;
} Move;

// Puts the arena's pages in place of the program's, or anonymous ones in place of the arena's; the bytes stay. In a thread of its own,
// so that the stack that is moved may be the caller's.
static void *move_pages(void *given) {
    Move *move = given;
    int all = PROT_READ | PROT_WRITE;
    off_t offset = (off_t)(ARENA_BYTES + move->from);
    void *copy = mmap(NULL, move->bytes, all, move->in ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, move->in ? arena : -1,
                      move->in ? offset : 0);
    if (copy == MAP_FAILED) return NULL;
    memcpy(copy, (void *)move->from, move->bytes);
    move->fine = mremap(copy, move->bytes, move->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)move->from) == (void *)move->from;
    if (!move->fine) munmap(copy, move->bytes);
    return NULL;
}

static bool moved(u64 from, u64 to, bool in) {
    Move move = {from, to - from, in, false};
    pthread_t thread;
    if (from >= to) return true;
    if (pthread_create(&thread, NULL, move_pages, &move)) return false;
    pthread_join(thread, NULL);
    return move.fine;
}

// Whether another registration has a page.
static bool shared_page(u64 page, const Registration *except) {
    for (Registration *at = registered; at; at = at->next) {
        const Allocation *each = &at->allocation;
        if (at != except && each->memory == REGISTERED_MEMORY && each->address < page + PAGE && each->address + each->bytes > page)
            return true;
    }
    return false;
}

// The pages of a registration, without those at its ends that another one has.
static void own_pages(const Registration *of, u64 *from, u64 *to) {
    *from = of->allocation.address / PAGE * PAGE;
    *to = up(of->allocation.address + of->allocation.bytes, PAGE);
    if (shared_page(*from, of)) *from += PAGE;
    if (*to > *from && shared_page(*to - PAGE, of)) *to -= PAGE;
}

API Error hipHostRegister(void *pointer, size_t bytes, u32 flags) {
    Error error = begin();
    if (error) return done(error);
    u64 address = (u64)pointer;
    if (!pointer || !bytes || flags & ~0x1fu || address + bytes < address) return done(INVALID_VALUE);
    u64 page = address / PAGE * PAGE, end = up(address + bytes, PAGE);
    if (msync((void *)page, end - page, MS_ASYNC) < 0) return done(INVALID_VALUE);  // not all of it is mapped
    Registration *made = calloc(1, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    void *sites[SITES];
    call_sites(CALLER, sites);
    made->allocation = (Allocation){
        .address = address, .bytes = bytes, .memory = REGISTERED_MEMORY, .device = current_device, .flags = flags};
    pthread_mutex_lock(&lock);
    bool known = in_arena(pointer);
    for (Registration *at = registered; at && !known; at = at->next)
        known = at->allocation.address < address + bytes && at->allocation.address + at->allocation.bytes > address;
    if (!known) {
        u64 from, to;
        own_pages(made, &from, &to);
        if (moved(from, to, true)) {
            made->allocation.number = ++made_by_kind[REGISTERED_MEMORY];
            made->next = registered, registered = made;
            log_event(LOG_ALLOCATE, (u32)current_device, REGISTERED_MEMORY, address, bytes, made->allocation.number, sites);
            made = NULL;
        } else {
            error = NOT_SUPPORTED;
        }
    }
    pthread_mutex_unlock(&lock);
    free(made);
    return done(known ? ALREADY_REGISTERED : error);
}

API Error hipHostUnregister(void *pointer) {
    Error error = begin();
    if (error) return done(error);
    if (!pointer) return done(INVALID_VALUE);
    for (u32 i = 0; i < state.devices; i++) wait_device((int)i);
    pthread_mutex_lock(&lock);
    Registration **at = &registered;
    while (*at && ((*at)->allocation.memory != REGISTERED_MEMORY || (*at)->allocation.address != (u64)pointer)) at = &(*at)->next;
    Registration *found = *at;
    if (found) {
        u64 from, to;
        own_pages(found, &from, &to);
        moved(from, to, false);
        *at = found->next;
        log_event(LOG_FREE, (u32)found->allocation.device, REGISTERED_MEMORY, (u64)pointer, found->allocation.bytes,
                  found->allocation.number, NULL);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return done(found ? SUCCESS : NOT_REGISTERED);
}

// -- what is known of a pointer ------------------------------------------------------------------

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
    if (!look_up(pointer, &found) || found.memory == DEVICE_MEMORY) return done(INVALID_VALUE);
    *result = pointer;
    return SUCCESS;
}

API Error hipHostGetFlags(u32 *flags, void *pointer) {
    Allocation found;
    if (!flags || !pointer || !look_up(pointer, &found) || found.memory == DEVICE_MEMORY) return done(INVALID_VALUE);
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
        return found->memory == DEVICE_MEMORY || found->memory == MODULE_MEMORY ? 1 : found->memory == MANAGED_MEMORY ? 3 : 0;
    return found->memory == DEVICE_MEMORY || found->memory == MODULE_MEMORY ? 2 : found->memory == MANAGED_MEMORY ? 3 : 1;
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
    bool on_device = found.memory == DEVICE_MEMORY || found.memory == MODULE_MEMORY;
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
        if (found.memory == DEVICE_MEMORY) return INVALID_VALUE;
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
