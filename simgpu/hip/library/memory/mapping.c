// Memory that a program maps by hand: it reserves a range of addresses, makes memory, and maps the memory into the range.
//
// The bytes of such memory have a home in the arena. Mapping shows the arena's pages of the home at the reserved addresses, too.
#include "memory.h"

#include <sys/mman.h>

#define SMALLEST 4096ull  // hipMemAllocationGranularityMinimum: pages
#define RECOMMENDED (2ull << 20)  // hipMemAllocationGranularityRecommended
#define POSIX_FILE 1  // hipMemHandleTypePosixFileDescriptor: for export to another process, which is not simulated
#define READ 1u  // hipMemAccessFlags
#define WRITE 2u

typedef struct {  // hipMemLocation
    int type, id;
} Location;

typedef struct {  // hipMemAllocationProp
    int type, handle_types;
    Location location;
    void *security;
    u8 flags[8];
} Properties;

typedef struct {  // hipMemAccessDesc
    Location location;
    u32 flags;
} Access;

typedef struct {  // memory that a program made
    Handle handle;
    Properties properties;
    u64 home, bytes;
    u32 held;  // number of handles and mappings
} Physical;

typedef struct Range {
    u64 address, bytes;
    struct Range *next;
} Range;

typedef struct {  // memory mapped into a part of a range
    Registration registration;  // element of the list `registered`
    Physical *memory;
} Mapping;

static Range *ranges;  // reserved

static bool is_device(Location location) { return location.type == 1 && location.id >= 0 && location.id < (int)state.devices; }

static bool is_mapping(const Registration *at) { return at->allocation.memory == MAPPED_MEMORY; }

static bool lies_in(u64 address, u64 bytes, u64 from, u64 all) {
    return address >= from && bytes <= all && address - from <= all - bytes;
}

// -- ranges of addresses -------------------------------------------------------------------------

API Error hipMemAddressReserve(void **result, size_t bytes, size_t alignment, void *wanted, u64 flags) {
    (void)wanted;  // HIP may give another one
    Error error = begin();
    if (!error && (!result || flags)) error = INVALID_VALUE;
    if (!error && (!bytes || bytes % SMALLEST || alignment & (alignment - 1))) error = OUT_OF_MEMORY;
    if (error) return done(error);
    *result = NULL;
    Range *made = calloc(1, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    pthread_mutex_lock(&lock);
    made->address = take_addresses(bytes, alignment > RECOMMENDED ? alignment : RECOMMENDED);
    if (made->address) made->bytes = bytes, made->next = ranges, ranges = made, *result = (void *)made->address;
    pthread_mutex_unlock(&lock);
    if (!*result) free(made);
    return done(*result ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipMemAddressFree(void *pointer, size_t bytes) {
    Error error = begin();
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    Range **at = &ranges, *found;
    while (*at && ((*at)->address != (u64)pointer || (*at)->bytes != bytes)) at = &(*at)->next;
    found = *at;
    for (Registration *other = registered; found && other; other = other->next)
        if (is_mapping(other) && lies_in(other->allocation.address, 1, found->address, bytes)) found = NULL;  // in use
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    return done(found ? SUCCESS : INVALID_VALUE);
}

// -- memory --------------------------------------------------------------------------------------

static bool is_valid(const Properties *properties) {
    return properties && properties->type == 1 /* pinned */ && is_device(properties->location);
}

API Error hipMemGetAllocationGranularity(size_t *result, const Properties *properties, int which) {
    Error error = begin();
    if (!error && (!result || !is_valid(properties) || which < 0 || which > 1)) error = INVALID_VALUE;
    if (!error) *result = which ? RECOMMENDED : SMALLEST;
    return done(error);
}

API Error hipMemCreate(Physical **result, size_t bytes, const Properties *properties, u64 flags) {
    Error error = begin();
    if (!error && (!result || !bytes || flags || !is_valid(properties) || bytes % SMALLEST)) error = INVALID_VALUE;
    if (!error && properties->handle_types & ~POSIX_FILE) error = NOT_SUPPORTED;
    if (error) return done(error);
    Physical *made = make_handle(PHYSICAL, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[properties->location.id];
    bool fits = bytes <= owner->memory && owner->used + bytes <= owner->memory;
    made->home = fits ? take_addresses(bytes, SMALLEST) : 0;
    if (made->home) {
        made->properties = *properties, made->bytes = bytes, made->held = 1;
        owner->used += bytes;
        undefine(made->home, bytes);
        *result = made;
    } else {
        end_handle(made, PHYSICAL);
        error = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return done(error);
}

static void let_go(Physical *memory) {  // hold the lock
    if (--memory->held) return;
    state.device[memory->properties.location.id].used -= memory->bytes;
    discard(memory->home, memory->bytes);
    end_handle(memory, PHYSICAL);
}

API Error hipMemRelease(Physical *memory) {
    Error error = begin();
    if (!error && !is_handle(memory, PHYSICAL)) error = INVALID_VALUE;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    let_go(memory);
    pthread_mutex_unlock(&lock);
    return done(SUCCESS);
}

API Error hipMemGetAllocationPropertiesFromHandle(Properties *result, Physical *memory) {
    if (!result || !is_handle(memory, PHYSICAL)) return done(INVALID_VALUE);
    *result = memory->properties;
    return done(SUCCESS);
}

static Mapping *mapping_at(u64 address) {  // hold the lock
    for (Registration *at = registered; at; at = at->next)
        if (is_mapping(at) && lies_in(address, 1, at->allocation.address, at->allocation.bytes)) return (Mapping *)at;
    return NULL;
}

API Error hipMemRetainAllocationHandle(Physical **result, void *pointer) {
    Error error = begin();
    if (!error && (!result || !pointer)) error = INVALID_VALUE;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    Mapping *found = mapping_at((u64)pointer);
    if (found) found->memory->held++, *result = found->memory;
    pthread_mutex_unlock(&lock);
    return done(found ? SUCCESS : INVALID_VALUE);
}

// -- mapping -------------------------------------------------------------------------------------

// Shows the arena's pages of one address, and their shadow, at another address.
static bool show(u64 address, u64 home, u64 bytes) {
    int all = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    off_t offset = (off_t)(home - arena_start);
    if (mmap((void *)address, bytes, all, flags, arena, offset) == MAP_FAILED) return false;
    return !state.shadow || mmap(state.shadow + (address - arena_start), bytes, all, flags, state.shadow_file, offset) != MAP_FAILED;
}

static bool can_map(u64 address, u64 bytes) {  // hold the lock
    bool reserved = false;
    for (Range *at = ranges; at; at = at->next) reserved = reserved || lies_in(address, bytes, at->address, at->bytes);
    for (Registration *at = registered; at && reserved; at = at->next) {
        const Allocation *other = &at->allocation;
        if (is_mapping(at) && other->address < address + bytes && address < other->address + other->bytes) return false;
    }
    return reserved;
}

API Error hipMemMap(void *pointer, size_t bytes, size_t offset, Physical *memory, u64 flags) {
    Error error = begin();
    u64 address = (u64)pointer;
    if (!error && (!is_handle(memory, PHYSICAL) || !bytes || offset || flags || (address | bytes) % SMALLEST)) error = INVALID_VALUE;
    if (!error && bytes > memory->bytes) error = INVALID_VALUE;
    Mapping *made = error ? NULL : calloc(1, sizeof *made);
    if (!made) return done(error ? error : OUT_OF_MEMORY);
    made->memory = memory;
    pthread_mutex_lock(&lock);
    if (can_map(address, bytes) && show(address, memory->home, bytes)) {
        made->registration.allocation = (Allocation){.address = address,
                                                     .bytes = bytes,
                                                     .memory = MAPPED_MEMORY,
                                                     .device = memory->properties.location.id,
                                                     .home = memory->home,
                                                     .number = next_number(MAPPED_MEMORY)};
        made->registration.next = registered, registered = &made->registration;
        memory->held++;
    } else {
        error = INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    if (error) free(made);
    return done(error);
}

// True if all of a range is mapped.
static bool is_mapped(u64 address, u64 bytes) {  // hold the lock
    for (u64 at = address; at < address + bytes;) {
        Mapping *found = mapping_at(at);
        if (!found) return false;
        at = found->registration.allocation.address + found->registration.allocation.bytes;
    }
    return true;
}

API Error hipMemUnmap(void *pointer, size_t bytes) {
    Error error = begin();
    u64 address = (u64)pointer;
    if (!error && (!pointer || !bytes || address + bytes < address)) error = INVALID_VALUE;
    if (error) return done(error);
    for (u32 i = 0; i < state.devices; i++) wait_device((int)i);  // running work may use the memory
    pthread_mutex_lock(&lock);
    bool whole = is_mapped(address, bytes);
    for (Registration *at = registered; at && whole; at = at->next) {  // no mapping may end outside the range
        const Allocation *each = &at->allocation;
        bool touched = is_mapping(at) && each->address < address + bytes && address < each->address + each->bytes;
        whole = !touched || lies_in(each->address, each->bytes, address, bytes);
    }
    for (Registration **at = &registered; *at && whole;) {
        Registration *each = *at;
        if (!is_mapping(each) || !lies_in(each->allocation.address, 1, address, bytes)) {
            at = &each->next;
            continue;
        }
        *at = each->next;
        if (each->allocation.access) log_allocation(LOG_FREE, &each->allocation, NULL);
        show(each->allocation.address, each->allocation.address, each->allocation.bytes);
        let_go(((Mapping *)each)->memory);
        free(each);
    }
    pthread_mutex_unlock(&lock);
    return done(whole ? SUCCESS : INVALID_VALUE);
}

// -- access --------------------------------------------------------------------------------------

API Error hipMemSetAccess(void *pointer, size_t bytes, const Access *access, size_t count) {
    Error error = begin();
    u64 address = (u64)pointer;
    if (!error && (!pointer || !bytes || !access || !count || address + bytes < address)) error = INVALID_VALUE;
    for (size_t i = 0; !error && i < count; i++)
        if (!is_device(access[i].location) || (access[i].flags && access[i].flags != READ && access[i].flags != (READ | WRITE)))
            error = INVALID_VALUE;
    if (error) return done(error);
    void *sites[SITES];
    call_sites(CALLER, sites);
    pthread_mutex_lock(&lock);
    bool whole = is_mapped(address, bytes);
    for (u64 at = address; whole && at < address + bytes;) {
        Allocation *each = &mapping_at(at)->registration.allocation;
        if (each->access) log_allocation(LOG_FREE, each, NULL);
        for (size_t i = 0; i < count; i++) {
            uint16_t bit = (uint16_t)(1u << access[i].location.id);
            each->access = access[i].flags ? each->access | bit : each->access & ~bit;
            each->read_only = access[i].flags == READ ? each->read_only | bit : each->read_only & ~bit;
        }
        if (each->access) log_allocation(LOG_ALLOCATE, each, sites);
        at = each->address + each->bytes;
    }
    pthread_mutex_unlock(&lock);
    return done(whole ? SUCCESS : INVALID_VALUE);
}

API Error hipMemGetAccess(u64 *flags, const Location *location, void *pointer) {
    Error error = begin();
    if (!error && (!flags || !location || !pointer || !is_device(*location))) error = INVALID_VALUE;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    Mapping *found = mapping_at((u64)pointer);
    if (found) {
        const Allocation *each = &found->registration.allocation;
        u32 on = each->access >> location->id & 1, read_only = each->read_only >> location->id & 1;
        *flags = on ? (read_only ? READ : READ | WRITE) : 0;
    }
    pthread_mutex_unlock(&lock);
    return done(found ? SUCCESS : INVALID_VALUE);
}
