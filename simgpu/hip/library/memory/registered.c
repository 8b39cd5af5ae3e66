// Registered memory of the program: pages of the arena replace the program's pages.
#include "memory.h"

#include <stdio.h>
#include <sys/mman.h>

#define GRANULE 4ull  // bytes: kernels access memory in multiples of it (simgpu/engine/allocations.py)

typedef struct {
    u64 from, bytes;
    bool in;
    bool fine;
} Move;

// Replaces the program's pages by the arena's, or the arena's by anonymous pages; the bytes stay the same. It runs in a thread of
// its own, because the pages may hold the caller's stack.
//
// The first and last page may hold other bytes, too. Whatever other threads write there between the copy and the move is lost. So
// these two pages are copied again just before they move.
static void *move_pages(void *given) {
    Move *move = given;
    int all = PROT_READ | PROT_WRITE;
    off_t offset = (off_t)(ARENA_BYTES + move->from);
    u8 *copy = mmap(NULL, move->bytes, all, move->in ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, move->in ? arena : -1,
                    move->in ? offset : 0);
    if (copy == MAP_FAILED) return NULL;
    memcpy(copy, (void *)move->from, move->bytes);
    u64 end = move->bytes - PAGE, bounds[] = {0, PAGE, end, move->bytes};
    static const int ORDER[] = {1, 0, 2};  // the pages between, the first page, the last
    move->fine = true;
    for (int i = 0; i < 3 && move->fine; i++) {
        u64 at = bounds[ORDER[i]], bytes = ORDER[i] == 2 && !end ? 0 : bounds[ORDER[i] + 1] - at;
        if (ORDER[i] == 1 && end <= PAGE) continue;
        void *to = (void *)(move->from + at);
        if (ORDER[i] != 1) memcpy(copy + at, to, bytes);
        if (bytes) move->fine = mremap(copy + at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
    }
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

// True if another registration has the page.
static bool shared_page(u64 page, const Registration *except) {
    for (Registration *at = registered; at; at = at->next) {
        const Allocation *each = &at->allocation;
        if (at != except && each->memory == REGISTERED_MEMORY && each->address < page + PAGE && each->address + each->bytes > page)
            return true;
    }
    return false;
}

// Finds the pages of a registration, without pages at its ends that another registration has.
static void own_pages(const Registration *of, u64 *from, u64 *to) {
    *from = of->allocation.address / PAGE * PAGE;
    *to = round_up(of->allocation.address + of->allocation.bytes, PAGE);
    if (shared_page(*from, of)) *from += PAGE;
    if (*to > *from && shared_page(*to - PAGE, of)) *to -= PAGE;
}

API Error hipHostRegister(void *pointer, size_t bytes, u32 flags) {
    Error error = begin();
    if (!error) error = unsafe_in_capture();
    if (error) return done(error);
    u64 address = (u64)pointer;
    if (!pointer || !bytes || flags & ~0x1fu || address + bytes < address) return done(INVALID_VALUE);
    u64 page = address / PAGE * PAGE, end = round_up(address + bytes, PAGE);
    if (msync((void *)page, end - page, MS_ASYNC) < 0) return done(INVALID_VALUE);  // not all of it is mapped
    Registration *made = calloc(1, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    void *sites[SITES];
    call_sites(CALLER, sites);
    made->allocation = (Allocation){
        .address = address, .bytes = bytes, .memory = REGISTERED_MEMORY, .device = current_device, .flags = flags};
    pthread_mutex_lock(&lock);
    bool known = in_arena(pointer);
    Registration *same = NULL;  // freed and allocated again without being unregistered: its pages may be different now
    for (Registration *at = registered; at && !known; at = at->next) {
        const Allocation *each = &at->allocation;
        if (each->memory == REGISTERED_MEMORY && each->address == address && each->bytes == bytes) same = at;
        else known = each->address < round_up(address + bytes, GRANULE) &&
                     round_up(each->address + each->bytes, GRANULE) > address / GRANULE * GRANULE;
    }
    if (same && !known) {
        u64 from, to;
        own_pages(same, &from, &to);
        error = moved(from, to, true) ? SUCCESS : NOT_SUPPORTED;
    } else if (!known) {
        u64 from, to;
        own_pages(made, &from, &to);
        if (moved(from, to, true)) {
            made->allocation.number = next_number(REGISTERED_MEMORY);
            made->next = registered, registered = made;
            log_allocation(LOG_ALLOCATE, &made->allocation, sites);
            made = NULL;
        } else {
            error = NOT_SUPPORTED;
        }
    }
    pthread_mutex_unlock(&lock);
    free(made);
    return done(known ? ALREADY_REGISTERED : error);
}

// Registers memory of another runtime under the name that findings give it (simgpu/tools/torch/hip_memory.py).
API Error simgpuRegisterNamed(void *pointer, size_t bytes, const char *name) {
    Error error = begin();
    if (error) return done(error);
    Reply reply;
    error = ask(NAME, &pointer, sizeof pointer, name, strlen(name), &reply);
    free(reply.data);
    return error ? done(error) : hipHostRegister(pointer, bytes, 0);
}

API Error hipHostUnregister(void *pointer) {
    Error error = begin();
    if (!error) error = unsafe_in_capture();
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
        log_allocation(LOG_FREE, &found->allocation, NULL);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return done(found ? SUCCESS : NOT_REGISTERED);
}
