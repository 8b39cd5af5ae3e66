// The arena: one file in memory. This process and the server both map it at arena_start, so pointers are equal on both sides and the
// program copies its bytes itself. Addresses are never used twice. Gaps separate allocations, so an access past one finds nothing.
#include "memory.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GAP (64ull << 10)
#define HOST_BYTES (1ull << 47)  // part of the arena's file after ARENA_BYTES: pages of registered memory, each at its own address
#define FIXED 0x100000  // MAP_FIXED_NOREPLACE
enum { SIGNAL = 2, CONTIGUOUS = 4 };  // flags of hipExtMallocWithFlags; 1 is fine grained, 3 not cached

int arena = -1;
// Addresses to try, the best first: some programs take one by chance, as Mojo's allocator does.
static const u64 STARTS[] = {0x100000000000, 0x300000000000, 0x200000000000};
u64 arena_start = 0x100000000000;
static u64 next;

// Allocations of the arena in the order of their addresses, which is also their order in time.
static Allocation *table;
static size_t count, room;
static u64 made_by_kind[SHARED_MEMORY + 1];

Registration *registered;

u64 round_up(u64 value, u64 to) { return (value + to - 1) / to * to; }

bool map_arena(int *descriptor) {
    static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mapping);
    if (arena < 0) {
        int made = (int)syscall(SYS_memfd_create, "simgpu-arena", 1u);
        bool fine = made >= 0 && ftruncate(made, (off_t)(ARENA_BYTES + HOST_BYTES)) == 0;
        for (size_t i = 0; fine && arena < 0 && i < sizeof STARTS / sizeof *STARTS; i++) {
            void *start = (void *)STARTS[i];
            void *got = mmap(start, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | FIXED, made, 0);
            if (got == start) arena = made, next = arena_start = STARTS[i];
            else if (got != MAP_FAILED) munmap(got, ARENA_BYTES);
        }
        if (arena < 0 && made >= 0) close(made);
    }
    pthread_mutex_unlock(&mapping);
    *descriptor = arena;
    return arena >= 0;
}

int open_file_of(u32 process, int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", process, file);
    return open(path, O_RDWR | O_CLOEXEC);
}

bool is_device_memory(Memory memory) { return memory == DEVICE_MEMORY || memory >= MODULE_MEMORY; }

bool is_coarse(const Allocation *of) {
    const u32 NOT_COHERENT = 0x80000000;  // hipHostMallocNonCoherent
    if (of->memory == HOST_MEMORY) return of->flags & NOT_COHERENT;
    if (of->memory == DEVICE_MEMORY) return !of->flags || of->flags == CONTIGUOUS;
    return of->memory == MAPPED_MEMORY || of->memory == MODULE_MEMORY;
}

bool in_arena(const void *pointer) { return (u64)pointer >= arena_start && (u64)pointer < arena_start + ARENA_BYTES; }

void call_sites(void *site, void **sites) {
    enum { DEEP = 24 };
    void *frames[DEEP];
    int found = site ? backtrace(frames, DEEP) : 0, at = 0;
    while (at < found && frames[at] != site) at++;
    for (int i = 0; i < SITES; i++) sites[i] = at + i < found ? frames[at + i] : NULL;
    if (at == found) sites[0] = site;
}

u64 next_number(Memory memory) { return ++made_by_kind[memory]; }

static Allocation *added(u64 address, u64 bytes, Memory memory, int device) {
    if (count == room) {
        size_t wanted = room ? 2 * room : 1024;
        Allocation *grown = realloc(table, wanted * sizeof *grown);
        if (!grown) return NULL;
        table = grown, room = wanted;
    }
    Allocation *made = &table[count++];
    *made = (Allocation){.address = address, .bytes = bytes, .memory = memory, .device = device, .number = next_number(memory),
                          .advice = {.preferred = -2, .prefetched = -2}};
    return made;
}

u64 take_addresses(u64 bytes, u64 alignment) {
    u64 address = round_up(next, alignment), end = arena_start + ARENA_BYTES - MODULE_BYTES;
    if (bytes >= ARENA_BYTES || address > end || round_up(bytes, PAGE) + GAP > end - address) return 0;
    next = address + round_up(bytes, PAGE) + GAP;
    return address;
}

Error allocate_page(void **page) {
    pthread_mutex_lock(&lock);
    *page = (void *)take_addresses(PAGE, PAGE);
    pthread_mutex_unlock(&lock);
    return *page ? SUCCESS : OUT_OF_MEMORY;
}

void name_page(const void *page, IpcHandle *handle) {
    *handle = (IpcHandle){.seal = IPC_EVENT, .process = (u32)getpid(), .file = arena, .offset = (u64)page - arena_start};
}

Error allocate(Memory memory, int device, size_t bytes, u32 flags, void *site, void **result) {
    void *sites[SITES];
    call_sites(site, sites);
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[device];
    bool fits = memory != DEVICE_MEMORY || (bytes <= owner->memory && owner->used + bytes <= owner->memory);
    u64 address = fits ? take_addresses(bytes, PAGE) : 0;
    Allocation *made = address ? added(address, bytes, memory, device) : NULL;
    if (made) {
        made->flags = flags;
        if (memory == DEVICE_MEMORY) {
            owner->used += bytes;
            undefine(made->address, bytes);
        }
        log_allocation(LOG_ALLOCATE, made, sites);
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
        size_t low = 0, high = count;  // finds the last one that begins at or below the address
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

void undefine(u64 address, u64 bytes) {
    if (!state.shadow) return;
    memset(state.shadow + (address - arena_start), 0xff, bytes);
    u32 *dword = (u32 *)address;
    for (size_t i = 0; i < (bytes + 3) / 4; i++) dword[i] = state.fill;
}

void discard(u64 address, u64 bytes) {
    if (!bytes) return;
    madvise((void *)address, bytes, MADV_REMOVE);
    if (state.shadow) madvise(state.shadow + (address - arena_start), bytes, MADV_REMOVE);
}

static void forget(Allocation *allocation) {
    u64 bytes = round_up(allocation->bytes, PAGE);
    allocation->freed = true;
    if (allocation->memory == DEVICE_MEMORY) state.device[allocation->device].used -= allocation->bytes;
    if (allocation->pool) count_release(allocation->pool, allocation->bytes);
    log_allocation(LOG_FREE, allocation, NULL);
    discard(allocation->address, bytes);
}

static const char *const NAMES[] = {"device memory", "pinned host memory", "managed memory", "registered memory",
                                    "a module",      "memory mapped by hand", "memory of another process"};

Error release(void *pointer, Memory memory, Memory other, void *site, const char *call) {
    pthread_mutex_lock(&lock);
    Allocation *found = find_allocation(pointer);
    Allocation seen = found ? *found : (Allocation){0};
    bool own = found && (found->memory == memory || found->memory == other);
    bool fits = found && found->address == (u64)pointer && !found->freed && found->memory <= MANAGED_MEMORY;
    if (fits) forget(found);
    pthread_mutex_unlock(&lock);
    if (fits && !own)  // HIP frees it all the same
        finding("mismatched-free", site, "%s(%p): @%llx is %s", call, pointer, (unsigned long long)seen.address, NAMES[seen.memory]);
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

void revive(void *pointer, bool anew) {
    pthread_mutex_lock(&lock);
    Allocation *found = find_allocation(pointer);
    if (found && found->freed) {
        found->freed = false;
        state.device[found->device].used += found->bytes;
        if (found->pool) count_allocation(found->pool, found->bytes);
        log_allocation(LOG_ALLOCATE, found, NULL);
    }
    if (found && anew && state.shadow) {
        undefine(found->address, found->bytes);
        log_allocation(LOG_UNDEFINED, found, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void release_all(int device) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (!table[i].freed && table[i].device == device && table[i].memory != HOST_MEMORY) forget(&table[i]);
    pthread_mutex_unlock(&lock);
}

// -- device memory -------------------------------------------------------------------------------

static Error new_memory(Memory memory, void **result, size_t bytes, u32 flags, void *site, const char *call) {
    Error error = begin();
    if (!error) error = unsafe_in_capture();
    if (error) return ended(call, error);
    if (!result) return ended(call, INVALID_VALUE);
    *result = NULL;
    return bytes ? ended(call, allocate(memory, current_device, bytes, flags, site, result)) : SUCCESS;
}

API Error hipMalloc(void **result, size_t bytes) { return new_memory(DEVICE_MEMORY, result, bytes, 0, CALLER, __func__); }

API Error hipExtMallocWithFlags(void **result, size_t bytes, u32 flags) {
    if (flags > CONTIGUOUS || (flags == SIGNAL && bytes != 8)) return done(INVALID_VALUE);
    return new_memory(DEVICE_MEMORY, result, bytes, flags, CALLER, __func__);
}

API Error hipMallocManaged(void **result, size_t bytes, u32 flags) {
    if ((flags != 1 && flags != 2) || !bytes) return done(INVALID_VALUE);  // hipMemAttachGlobal, hipMemAttachHost
    return new_memory(MANAGED_MEMORY, result, bytes, flags, CALLER, __func__);
}

static Error new_host_memory(void **result, size_t bytes, u32 flags, void *site, const char *call) {
    const u32 COHERENT = 0x40000000, NOT_COHERENT = 0x80000000;
    if (result && bytes) *result = NULL;
    if (flags & COHERENT && flags & NOT_COHERENT) return ended(call, INVALID_VALUE);
    return new_memory(HOST_MEMORY, result, bytes, flags, site, call);
}

API Error hipHostMalloc(void **result, size_t bytes, u32 flags) { return new_host_memory(result, bytes, flags, CALLER, __func__); }
API Error hipExtHostAlloc(void **result, size_t bytes, u32 flags) {
    return new_host_memory(result, bytes, flags, CALLER, __func__);
}
API Error hipHostAlloc(void **result, size_t bytes, u32 flags) {
    return flags > 7 ? done(INVALID_VALUE) : new_host_memory(result, bytes, flags, CALLER, __func__);
}
API Error hipMallocHost(void **result, size_t bytes) { return new_memory(HOST_MEMORY, result, bytes, 0, CALLER, __func__); }
API Error hipMemAllocHost(void **result, size_t bytes) { return new_memory(HOST_MEMORY, result, bytes, 0, CALLER, __func__); }

API Error hipMallocPitch(void **result, size_t *pitch, size_t width, size_t height) {
    if (!pitch || !result) return done(INVALID_VALUE);
    *pitch = round_up(width, 256);
    return new_memory(DEVICE_MEMORY, result, *pitch * height, 0, CALLER, __func__);
}

API Error hipMemAllocPitch(void **result, size_t *pitch, size_t width, size_t height, u32 element) {
    if (!pitch || !result || !width || !height || (element != 4 && element != 8 && element != 16)) return done(INVALID_VALUE);
    *pitch = round_up(width, 256);
    return new_memory(DEVICE_MEMORY, result, *pitch * height, 0, CALLER, __func__);
}

API Error hipMalloc3D(PitchedPointer *result, Extent extent) {
    if (!result) return done(INVALID_VALUE);
    *result = (PitchedPointer){NULL, round_up(extent.width, 256), extent.width, extent.height};
    return new_memory(DEVICE_MEMORY, &result->pointer, result->pitch * extent.height * extent.depth, 0, CALLER, __func__);
}

static Error free_memory(void *pointer, Memory memory, Memory other, void *site, const char *call) {
    Error error = begin();
    if (!error) error = unsafe_in_capture();
    if (error || !pointer) return ended(call, error);
    for (u32 i = 0; i < state.devices; i++) wait_device((int)i);  // running work may use the memory
    return ended(call, release(pointer, memory, other, site, call));
}

API Error hipFree(void *pointer) { return free_memory(pointer, DEVICE_MEMORY, MANAGED_MEMORY, CALLER, "hipFree"); }
API Error hipHostFree(void *pointer) { return free_memory(pointer, HOST_MEMORY, HOST_MEMORY, CALLER, "hipHostFree"); }
API Error hipFreeHost(void *pointer) { return free_memory(pointer, HOST_MEMORY, HOST_MEMORY, CALLER, "hipFreeHost"); }
