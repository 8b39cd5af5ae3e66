// Work of a stream on the host: it calls back, waits for a value in memory, or writes one.
#include "internal.h"

#include <time.h>

typedef struct {
    Operation operation;
    void (*plain)(void *);
    void (*full)(void *, Error, void *);
    void *data, *stream;
} Callback;

Error run_callback(Operation *operation) {
    Callback *it = (Callback *)operation;
    order_callback(operation);
    if (it->plain) it->plain(it->data);
    else it->full(it->stream, device_error(operation->stream->device), it->data);
    return SUCCESS;
}

void *make_callback(void (*call)(void *), void *data) {
    Callback *made = make_operation(sizeof *made, run_callback);
    if (made) made->plain = call, made->data = data;
    return made;
}

void read_callback(const Operation *operation, void (**call)(void *), void **data) {
    const Callback *it = (const Callback *)operation;
    *call = it->plain, *data = it->data;
}

static Error call_back(void *given, Callback wanted) {
    WITH_STREAM(given, stream)
    if (!wanted.plain && !wanted.full) return done(INVALID_VALUE);
    Callback *made = make_operation(sizeof *made, run_callback);
    if (!made) return done(OUT_OF_MEMORY);
    wanted.operation = made->operation, wanted.stream = given;
    *made = wanted;
    return done(submit(stream, &made->operation));
}

API Error hipLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
    return call_back(stream, (Callback){.plain = call, .data = data});
}

API Error hipStreamAddCallback(void *stream, void (*call)(void *, Error, void *), void *data, u32 flags) {
    return flags ? done(INVALID_VALUE) : call_back(stream, (Callback){.full = call, .data = data});
}

typedef struct {
    Operation operation;
    volatile u8 *at;
    u64 value, mask;
    u32 bytes, flags;
} Value;

static u64 value_at(const Value *it) { return it->bytes == 4 ? *(volatile u32 *)it->at : *(volatile u64 *)it->at; }

Error run_value_wait(Operation *operation) {
    Value *it = (Value *)operation;
    for (;;) {
        u64 found = value_at(it) & it->mask, wanted = it->value & it->mask;
        bool met = it->flags == 0   ? (it->bytes == 4 ? (int32_t)(found - wanted) >= 0 : (int64_t)(found - wanted) >= 0)
                   : it->flags == 1 ? found == wanted
                   : it->flags == 2 ? (it->value & found) != 0
                                    : (~(it->value | found) & it->mask) != 0;
        if (met || device_error(operation->stream->device)) return SUCCESS;
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}

static Error run_value_write(Operation *operation) {
    Value *it = (Value *)operation;
    if (it->bytes == 4) __atomic_store_n((u32 *)it->at, (u32)it->value, __ATOMIC_SEQ_CST);
    else __atomic_store_n((u64 *)it->at, it->value, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

static Error value(void *given, void *pointer, u64 wanted, u64 mask, u32 bytes, u32 flags, Error (*run)(Operation *)) {
    WITH_STREAM(given, stream)
    Transfer access = {
        .to = pointer, .width = bytes, .height = 1, .depth = 1, .site = CALLER, .call = "a stream's access to a value"};
    if (!pointer || flags > 3 || (u64)pointer % bytes || check_transfer(&access, false)) return done(INVALID_VALUE);
    Value *made = make_operation(sizeof *made, run);
    if (!made) return done(OUT_OF_MEMORY);
    made->at = pointer, made->value = wanted, made->mask = mask, made->bytes = bytes, made->flags = flags;
    return done(submit(stream, &made->operation));
}

API Error hipStreamWaitValue32(void *s, void *p, u32 v, u32 flags, u32 mask) {
    return value(s, p, v, mask, 4, flags, run_value_wait);
}
API Error hipStreamWaitValue64(void *s, void *p, u64 v, u32 flags, u64 mask) {
    return value(s, p, v, mask, 8, flags, run_value_wait);
}
API Error hipStreamWriteValue32(void *s, void *p, u32 v, u32 flags) {
    (void)flags;
    return value(s, p, v, ~0u, 4, 0, run_value_write);
}
API Error hipStreamWriteValue64(void *s, void *p, u64 v, u32 flags) {
    (void)flags;
    return value(s, p, v, ~0ull, 8, 0, run_value_write);
}

typedef struct {  // hipStreamBatchMemOpParams
    u32 kind;
    void *at;
    u64 value;
    u32 flags;
    u64 padding[2];
} ValueCall;

API Error hipStreamBatchMemOp(void *stream, u32 count, const ValueCall *calls, u32 flags) {
    enum { WAIT32 = 1, WRITE32, WAIT64 = 4, WRITE64, MOST = 256 };
    if (!calls || !count || count > MOST || flags) return done(INVALID_VALUE);
    for (u32 at = 0; at < count; at++)
        if (calls[at].kind < WAIT32 || calls[at].kind > WRITE64 || calls[at].kind == 3) return done(INVALID_VALUE);
    for (u32 at = 0; at < count; at++) {
        ValueCall call = calls[at];
        bool waits = call.kind == WAIT32 || call.kind == WAIT64;
        u32 bytes = call.kind < WAIT64 ? 4 : 8;
        u64 wanted = bytes == 4 ? (u32)call.value : call.value;
        Error error = value(stream, call.at, wanted, ~0ull, bytes, waits ? call.flags : 0, waits ? run_value_wait : run_value_write);
        if (error) return error;
    }
    return SUCCESS;
}
