// The log of work, in checked mode: what streams are asked to do, what waits for what, and what the host knows to be complete. The
// server finds accesses in it that nothing orders (simgpu/hip/order.py).
//
//   LOG_STREAM   a stream was made
//   LOG_QUEUED   address: the stream, 0 for the host, which works at once. bytes: ticket. memory: `What`. coarse: true for null
//                streams
//   LOG_READS, LOG_WRITES   what the entry before does: `number` rows of `bytes` bytes from `address` on, `home` bytes apart
//   LOG_WAITS    what stream `address` does after its ticket `bytes` follows ticket `home` of stream `number`
//   LOG_SEEN     what any stream is asked for from now on follows ticket `bytes` of stream `address`
//   LOG_UNKNOWN  streams order their work by values in memory
#include "work.h"

typedef enum { KERNEL_WORK, COPY_WORK, FILL_WORK, RELEASE_WORK, ALLOCATION_WORK } What;

void order_stream(const Stream *made) {
    if (state.checked && !made->null) log_entry((Entry){.kind = LOG_STREAM}, NULL);
}

static void log_queued(const Operation *operation, const Stream *stream, What what, void *site) {
    void *sites[SITES];
    call_sites(site, sites);
    log_entry((Entry){.kind = LOG_QUEUED,
                      .device = (u32)(stream ? stream->device : current_device),
                      .memory = what,
                      .coarse = stream && stream->null,
                      .address = stream ? stream->id : 0,
                      .bytes = operation->ticket},
              sites);
}

static void log_bytes(u32 kind, const void *at, u64 width, u64 rows, u64 pitch) {
    log_entry((Entry){.kind = kind, .address = (u64)at, .bytes = width, .number = rows, .home = pitch}, NULL);
}

static void log_transfer(const Transfer *it, const Stream *stream) {
    log_queued(&it->operation, stream, it->from ? COPY_WORK : FILL_WORK, it->site);
    for (size_t z = 0; z < it->depth; z++) {
        log_bytes(LOG_WRITES, it->to + z * it->to_slice, it->width, it->height, it->to_pitch);
        if (it->from) log_bytes(LOG_READS, it->from + z * it->from_slice, it->width, it->height, it->from_pitch);
    }
}

void order_queued(const Operation *operation) {
    const Stream *stream = operation->stream;
    if (!state.checked) return;
    if (operation->run == run_launch) {
        log_queued(operation, stream, KERNEL_WORK, ((const Launch *)operation)->site);
    } else if (operation->run == run_copy || operation->run == run_fill) {
        log_transfer((const Transfer *)operation, stream);
    } else if (operation->run == run_release || operation->run == run_allocation) {
        const PoolOperation *it = (const PoolOperation *)operation;
        const Allocation *found = find_allocation(it->pointer);
        log_queued(operation, stream, operation->run == run_release ? RELEASE_WORK : ALLOCATION_WORK, it->site);
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
    log_transfer(transfer, NULL);
    pthread_mutex_unlock(&lock);
}

void order_waits(const Stream *stream, const Stream *other, u64 ticket) {
    if (!state.checked || ticket <= other->seen) return;
    const Entry entry = {
        .kind = LOG_WAITS, .address = stream->id, .bytes = stream->submitted, .number = other->id, .home = ticket};
    log_entry(entry, NULL);
}

void order_seen(Stream *stream, u64 ticket) {
    if (!state.checked || ticket <= stream->seen) return;
    stream->seen = ticket;
    log_entry((Entry){.kind = LOG_SEEN, .address = stream->id, .bytes = ticket}, NULL);
}
