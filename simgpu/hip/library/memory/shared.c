// Memory that processes share: an allocation of one process appears in the other's arena, too, at a different address.
//
// A handle names the process and its arena's file. The other process and its server open the file through /proc.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#define LAZY_PEER_ACCESS 1u  // hipIpcMemLazyEnablePeerAccess, the only flag

typedef struct {  // another process's memory, opened here
    Registration registration;  // element of the list `registered`
    u32 process;
    u64 source;  // address in that process
    u32 held;  // number of opens without a close
} Import;

API Error hipIpcGetMemHandle(IpcHandle *handle, void *pointer) {
    Error error = begin();
    Allocation found;
    if (!error && (!handle || !pointer || !look_up(pointer, &found) || found.memory != DEVICE_MEMORY)) error = INVALID_VALUE;
    if (error) return done(error);
    // The library cannot see what other processes write: from now on all bytes count as written.
    if (state.shadow) memset(state.shadow + (found.address - arena_start), 0, found.bytes);
    *handle = (IpcHandle){.seal = IPC_MEMORY, .process = (u32)getpid(), .file = arena, .start = arena_start, .address = found.address,
                          .bytes = found.bytes, .offset = (u64)pointer - found.address};
    return done(SUCCESS);
}

// Finds opened memory by its process and address there, or by an address here; NULL: none. Hold the lock.
static Import *find_import(const IpcHandle *handle, u64 address) {
    for (Registration *at = registered; at; at = at->next) {
        Import *import = (Import *)at;
        if (at->allocation.memory != SHARED_MEMORY) continue;
        if (handle ? import->process == handle->process && import->source == handle->address
                   : address - at->allocation.address < at->allocation.bytes)
            return import;
    }
    return NULL;
}

// Replaces the arena's pages by the other process's, here and at the server.
static Error take_pages(u64 address, const IpcHandle *handle) {
    struct {
        u64 address, bytes, offset;
        u32 process;
        int file;
    } wanted = {address, round_up(handle->bytes, PAGE), handle->address - handle->start, handle->process, handle->file};
    int file = open_file_of(handle->process, handle->file);
    void *at = file < 0 ? MAP_FAILED
                        : mmap((void *)address, wanted.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                               (off_t)wanted.offset);
    if (file >= 0) close(file);
    if (at == MAP_FAILED) return INVALID_DEVICE_POINTER;
    Reply reply;
    Error error = ask(SHARE, &wanted, sizeof wanted, NULL, 0, &reply);
    free(reply.data);
    return error;
}

static void give_pages_back(u64 address, u64 bytes) {
    mmap((void *)address, round_up(bytes, PAGE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, arena,
         (off_t)(address - arena_start));
}

static Error open_memory(const IpcHandle *handle, void **sites, u64 *address) {
    Import *made = calloc(1, sizeof *made);
    if (!made) return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *address = take_addresses(handle->bytes, PAGE);
    pthread_mutex_unlock(&lock);
    Error error = *address ? take_pages(*address, handle) : OUT_OF_MEMORY;
    if (error) return free(made), error;
    made->process = handle->process, made->source = handle->address, made->held = 1;
    pthread_mutex_lock(&lock);
    made->registration.allocation = (Allocation){.address = *address, .bytes = handle->bytes, .memory = SHARED_MEMORY,
                                                 .device = current_device, .number = next_number(SHARED_MEMORY)};
    made->registration.next = registered, registered = &made->registration;
    log_allocation(LOG_ALLOCATE, &made->registration.allocation, sites);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API Error hipIpcOpenMemHandle(void **result, IpcHandle handle, u32 flags) {
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    Error error = begin();
    if (!error && (!result || flags != LAZY_PEER_ACCESS)) error = INVALID_VALUE;
    bool fits = handle.seal == IPC_MEMORY && handle.bytes && handle.bytes < ARENA_BYTES && handle.address >= handle.start &&
                handle.address - handle.start <= ARENA_BYTES - handle.bytes && handle.address % PAGE == 0 && handle.offset < handle.bytes;
    if (!error && !fits) error = INVALID_VALUE;
    if (!error && handle.process == (u32)getpid()) error = INVALID_CONTEXT;
    if (error) return done(error);
    void *sites[SITES];
    call_sites(CALLER, sites);
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    Import *known = find_import(&handle, 0);
    u64 address = known ? known->held++, known->registration.allocation.address : 0;
    pthread_mutex_unlock(&lock);
    if (!known) error = open_memory(&handle, sites, &address);
    pthread_mutex_unlock(&opening);
    if (!error) *result = (void *)(address + handle.offset);
    return done(error);
}

API Error hipIpcCloseMemHandle(void *pointer) {
    Error error = begin();
    if (error || !pointer) return done(error ? error : INVALID_VALUE);
    for (u32 i = 0; i < state.devices; i++) wait_device((int)i);  // running work may use the memory
    pthread_mutex_lock(&lock);
    Import *found = find_import(NULL, (u64)pointer);
    bool last = found && --found->held == 0;
    if (last) {
        Registration **at = &registered;
        while (*at != &found->registration) at = &(*at)->next;
        *at = found->registration.next;
        log_allocation(LOG_FREE, &found->registration.allocation, NULL);
        give_pages_back(found->registration.allocation.address, found->registration.allocation.bytes);
    }
    pthread_mutex_unlock(&lock);
    if (last) free(found);
    return done(found ? SUCCESS : INVALID_VALUE);
}
