// The log of work, in checked mode: what streams are asked to do, what waits for what, and what the host knows to be complete. The
// server finds accesses in it that nothing orders (simgpu/hip/order.py).
//
//   LOG_STREAM   a stream was made
//   LOG_QUEUED   address: the stream, 0 for the host, which works at once. bytes: ticket. memory: `What`. coarse: true for null
//                streams. number: the stream that users know
//   LOG_READS, LOG_WRITES   what the entry before does: `number` rows of `bytes` bytes from `address` on, `home` bytes apart
//   LOG_WAITS    what stream `address` does after its ticket `bytes` follows ticket `home` of stream `number`
//   LOG_SEEN     what any stream is asked for from now on follows ticket `bytes` of stream `address`
//   LOG_UNKNOWN  streams order their work by values in memory
//
// A graph's launch runs in one stream here, but its steps have the order that the graph gives them. So each chain of steps is a
// branch, a stream of its own. Its first step follows the stream's earlier work, or steps of other branches. Later work of the
// stream follows all.
#include "work.h"

typedef enum { KERNEL_WORK, COPY_WORK, FILL_WORK, RELEASE_WORK, ALLOCATION_WORK } What;

#define BRANCHES (1ull << 32)  // numbers of branches begin here

u64 order_place(const Operation *operation) {
    return operation->branch ? operation->branch : operation->stream ? operation->stream->id : 0;
}
u64 order_ticket(const Operation *operation) { return operation->branch ? operation->branch_ticket : operation->ticket; }

void order_stream(const Stream *made) {
    if (state.checked && !made->null) log_entry((Entry){.kind = LOG_STREAM}, NULL);
}

static void log_queued(const Operation *operation, What what, void *site) {
    const Stream *stream = operation->stream;  // NULL: the host
    void *sites[SITES];
    call_sites(site, sites);
    log_entry((Entry){.kind = LOG_QUEUED,
                      .device = (u32)(stream ? stream->device : current_device),
                      .memory = what,
                      .coarse = stream && stream->null,
                      .address = order_place(operation),
                      .bytes = order_ticket(operation),
                      .number = stream ? stream->id : 0},
              sites);
}

static void log_bytes(u32 kind, const void *at, u64 width, u64 rows, u64 pitch) {
    log_entry((Entry){.kind = kind, .address = (u64)at, .bytes = width, .number = rows, .home = pitch}, NULL);
}

static void log_transfer(const Transfer *it) {
    log_queued(&it->operation, it->from ? COPY_WORK : FILL_WORK, it->site);
    for (size_t z = 0; z < it->depth; z++) {
        log_bytes(LOG_WRITES, it->to + z * it->to_slice, it->width, it->height, it->to_pitch);
        if (it->from) log_bytes(LOG_READS, it->from + z * it->from_slice, it->width, it->height, it->from_pitch);
    }
}

void order_queued(const Operation *operation) {
    if (!state.checked) return;
    if (operation->run == run_launch) {
        log_queued(operation, KERNEL_WORK, ((const Launch *)operation)->site);
    } else if (operation->run == run_copy || operation->run == run_fill) {
        log_transfer((const Transfer *)operation);
    } else if (operation->run == run_release || operation->run == run_allocation) {
        const PoolOperation *it = (const PoolOperation *)operation;
        const Allocation *found = find_allocation(it->pointer);
        log_queued(operation, operation->run == run_release ? RELEASE_WORK : ALLOCATION_WORK, it->site);
        if (found) log_bytes(LOG_WRITES, it->pointer, found->bytes, 1, 0);
    } else if (operation->run == run_value_wait) {
        log_entry((Entry){.kind = LOG_UNKNOWN}, NULL);
    }
}

void order_at_once(Transfer *transfer) {
    static u64 transfers;
    if (!state.checked) return;
    pthread_mutex_lock(&lock);
    transfer->operation.ticket = ++transfers;
    log_transfer(transfer);
    pthread_mutex_unlock(&lock);
}

static void log_waits(u64 stream, u64 after, u64 other, u64 ticket) {
    log_entry((Entry){.kind = LOG_WAITS, .address = stream, .bytes = after, .number = other, .home = ticket}, NULL);
}

void order_waits(const Stream *stream, const Stream *other, u64 ticket) {
    if (state.checked && ticket > other->seen) log_waits(stream->id, stream->submitted, other->id, ticket);
}

void order_seen(Stream *stream, u64 ticket) {
    if (!state.checked || ticket <= stream->seen) return;
    stream->seen = ticket;
    log_entry((Entry){.kind = LOG_SEEN, .address = stream->id, .bytes = ticket}, NULL);
}

// A callback may tell the program's threads what is done before it.
void order_callback(const Operation *operation) {
    if (!state.checked) return;
    pthread_mutex_lock(&lock);
    if (!operation->branch) order_seen(operation->stream, operation->ticket - 1);
    else log_entry((Entry){.kind = LOG_SEEN, .address = operation->branch, .bytes = operation->branch_ticket}, NULL);
    pthread_mutex_unlock(&lock);
}

// -- graphs --------------------------------------------------------------------------------------

u64 order_graph(Stream *stream, u32 branches) {
    static u64 made = BRANCHES;
    if (!state.checked || stream->capture) return 0;
    pthread_mutex_lock(&lock);
    u64 first = made;
    made += branches;
    push_default_waits(stream);
    pthread_mutex_unlock(&lock);
    return first;
}

void order_follows(u64 branch, u64 after, u64 other, u64 ticket) {
    if (!branch) return;
    pthread_mutex_lock(&lock);
    log_waits(branch, after, other, ticket);
    pthread_mutex_unlock(&lock);
}

void order_follows_stream(u64 branch, u64 after, const Stream *stream) {
    order_follows(branch, after, stream->id, stream->submitted + 1);
}

// Who waits for the stream's last operation waits for the branch.
void order_stream_follows(const Stream *stream, u64 branch, u64 ticket) {
    order_follows(stream->id, stream->submitted ? stream->submitted - 1 : 0, branch, ticket);
}
