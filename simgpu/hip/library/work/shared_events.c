// Events that processes share. All of them map a page with the event's numbers of records begun and completed.
#include "work.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct SharedEvent {
    u64 recorded, completed;
    u32 process;  // process that recorded it last
};

Error share_event(Event *event) {
    void *page;
    Error error = allocate_page(&page);
    if (!error) event->shared = page;
    return error;
}

u64 begin_shared_record(const Event *event) {
    __atomic_store_n(&event->shared->process, (u32)getpid(), __ATOMIC_SEQ_CST);
    return __atomic_add_fetch(&event->shared->recorded, 1, __ATOMIC_SEQ_CST);
}

void end_shared_record(SharedEvent *shared, u64 ticket) {
    u64 before = __atomic_load_n(&shared->completed, __ATOMIC_SEQ_CST);
    while (before < ticket &&
           !__atomic_compare_exchange_n(&shared->completed, &before, ticket, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
}

// True if a record is done, or if the process that recorded last has ended: its record would never be done.
static bool is_done(SharedEvent *shared, u64 ticket) {
    if (__atomic_load_n(&shared->completed, __ATOMIC_SEQ_CST) >= ticket) return true;
    return kill((pid_t)__atomic_load_n(&shared->process, __ATOMIC_SEQ_CST), 0) < 0 && errno == ESRCH;
}

static u64 last_record(SharedEvent *shared) { return __atomic_load_n(&shared->recorded, __ATOMIC_SEQ_CST); }

static void wait_until_done(SharedEvent *shared, u64 ticket) {
    while (!is_done(shared, ticket)) nanosleep(&(struct timespec){0, 50000}, NULL);
}

bool is_shared_ready(const Event *event) { return is_done(event->shared, last_record(event->shared)); }
void wait_shared(const Event *event) { wait_until_done(event->shared, last_record(event->shared)); }

typedef struct {
    Operation operation;
    SharedEvent *shared;
    u64 ticket;
} SharedWait;

static Error run_shared_wait(Operation *operation) {
    SharedWait *it = (SharedWait *)operation;
    wait_until_done(it->shared, it->ticket);
    return SUCCESS;
}

Error push_shared_wait(Stream *stream, const Event *event) {
    SharedWait *made = make_operation(sizeof *made, run_shared_wait);
    if (!made) return OUT_OF_MEMORY;
    if (event->recorded) order_waits(stream, event->stream, event->ticket);
    made->shared = event->shared, made->ticket = last_record(event->shared);
    return push(stream, &made->operation);
}

API Error hipIpcGetEventHandle(IpcHandle *handle, Event *event) {
    Error error = begin();
    if (!error && (!handle || !is_handle(event, EVENT))) error = INVALID_VALUE;
    if (!error && (!event->shared || event->opened)) error = INVALID_CONFIGURATION;
    if (!error) name_page(event->shared, handle);
    return done(error);
}

API Error hipIpcOpenEventHandle(void **result, IpcHandle handle) {
    Error error = begin();
    if (!error && (!result || handle.seal != IPC_EVENT || handle.offset % 4096)) error = INVALID_VALUE;
    if (!error && handle.process == (u32)getpid()) error = INVALID_CONTEXT;
    if (error) return done(error);
    // The page stays mapped for ever: a stream may still use it after the event is destroyed.
    int file = open_file_of(handle.process, handle.file);
    void *page = MAP_FAILED;
    if (file >= 0) page = mmap(NULL, sizeof(SharedEvent), PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)handle.offset);
    if (file >= 0) close(file);
    if (page == MAP_FAILED) return done(INVALID_VALUE);
    Event *made = make_handle(EVENT, sizeof *made);
    if (!made) return munmap(page, sizeof(SharedEvent)), done(OUT_OF_MEMORY);
    made->flags = NO_TIMING | INTERPROCESS, made->device = current_device, made->shared = page, made->opened = true;
    *result = made;
    return done(SUCCESS);
}
