// Events: places in streams.
#include "work.h"

#define RELEASES 0xe0000000u  // hipEventReleaseToDevice, hipEventReleaseToSystem, hipEventDisableSystemFence: one of them at most
#define EVENT_FLAGS (RELEASES | 7u)

static Error find_event(void *given, Event **found) {
    Error error = begin();
    if (error) return error;
    if (!is_handle(given, EVENT)) {
        if (was_handle(given, EVENT)) finding("use-after-destroy", NULL, "an event is used that was destroyed before");
        return INVALID_HANDLE;
    }
    *found = given;
    return SUCCESS;
}

API Error hipEventCreateWithFlags(void **result, u32 flags) {
    Error error = begin();
    if (error) return done(error);
    if (!result || flags & ~EVENT_FLAGS || __builtin_popcount(flags & RELEASES) > 1) return done(INVALID_VALUE);
    if (flags & INTERPROCESS && !(flags & NO_TIMING)) return done(INVALID_VALUE);
    Event *made = make_handle(EVENT, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    made->flags = flags, made->device = current_device;
    error = flags & INTERPROCESS ? share_event(made) : SUCCESS;
    if (error) end_handle(made, EVENT);
    else *result = made;
    return done(error);
}

API Error hipEventCreate(void **result) { return hipEventCreateWithFlags(result, 0); }

API Error hipEventDestroy(void *given) {
    Event *event;
    Error error = find_event(given, &event);
    if (!error) end_handle(event, EVENT);
    return done(error == INVALID_HANDLE && given ? CONTEXT_DESTROYED : error);
}

typedef struct {
    Operation operation;
    Event *event;
    u64 ticket;
    SharedEvent *shared;
    u64 shared_ticket;
} Record;

static Error run_record(Operation *operation) {
    Record *it = (Record *)operation;
    pthread_mutex_lock(&lock);
    if (!it->ticket || it->event->ticket == it->ticket) it->event->time = now();
    pthread_mutex_unlock(&lock);
    if (it->shared) end_shared_record(it->shared, it->shared_ticket);
    return SUCCESS;
}

// Queues the event after all operations that the stream holds now.
Error record_event(Stream *stream, Event *event) {
    Record *made = make_operation(sizeof *made, run_record);
    if (!made) return OUT_OF_MEMORY;
    made->event = event;
    pthread_mutex_lock(&lock);
    Error error = push_default_waits(stream);
    if (error) {
        free(made);
    } else {
        u64 ticket = made->ticket = stream->submitted + 1;
        u64 shared_ticket = event->shared && !stream->ended ? begin_shared_record(event) : 0;
        made->shared = event->shared, made->shared_ticket = shared_ticket;
        error = push(stream, &made->operation);
        if (!error) event->capture = NULL, event->stream = stream, event->ticket = ticket, event->recorded = true;
        else if (shared_ticket) end_shared_record(event->shared, shared_ticket);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static Error record(void *given_event, void *given_stream) {
    Event *event;
    Stream *stream;
    Error error = find_event(given_event, &event);
    if (!error) error = find_stream(given_stream, &stream);
    if (!error && event->device != stream->device) error = INVALID_HANDLE;
    if (error) return done(error);
    return done(stream->capture ? capture_record(stream, event) : record_event(stream, event));
}

API Error hipEventRecord(void *event, void *stream) { return record(event, stream); }
API Error hipEventRecordWithFlags(void *event, void *stream, u32 flags) {
    return flags > 1 ? done(INVALID_VALUE) : record(event, stream);
}

Error wait_event(Stream *stream, Event *event) {
    pthread_mutex_lock(&lock);
    Error error = event->shared     ? push_shared_wait(stream, event)
                  : event->recorded ? push_wait(stream, event->stream, event->ticket)
                                    : SUCCESS;
    pthread_mutex_unlock(&lock);
    return error;
}

API Error hipStreamWaitEvent(void *given, void *given_event, u32 flags) {
    Event *event;
    Stream *stream;
    Error error = find_event(given_event, &event);
    if (!error && find_stream(given, &stream)) error = INVALID_HANDLE;
    if (!error && flags > 1) error = INVALID_VALUE;
    if (error) return done(error);
    return done(stream->capture || event->capture ? capture_wait(stream, event) : wait_event(stream, event));
}

API Error hipEventSynchronize(void *given) {
    Event *event;
    Error error = find_event(given, &event);
    if (!error && event->capture) error = CAPTURED_EVENT;
    if (!error) error = not_from_callbacks();
    if (error) return done(error);
    if (event->shared) wait_shared(event);
    pthread_mutex_lock(&lock);
    if (event->recorded) wait_for(event->stream, event->ticket);
    error = event->recorded ? state.device[event->stream->device].failure : SUCCESS;
    pthread_mutex_unlock(&lock);
    return done(error);
}

API Error hipEventQuery(void *given) {
    Event *event;
    Error error = find_event(given, &event);
    if (!error && event->capture) error = CAPTURED_EVENT;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    bool ready = event->shared ? is_shared_ready(event) : !event->recorded || event->stream->completed >= event->ticket;
    if (ready && event->recorded) order_seen(event->stream, event->ticket);
    error = event->recorded ? state.device[event->stream->device].failure : SUCCESS;
    pthread_mutex_unlock(&lock);
    return done(ready ? error : NOT_READY);
}

API Error hipEventElapsedTime(float *result, void *given_first, void *given_last) {
    Event *first, *last;
    if (!result) return done(INVALID_VALUE);
    Error error = find_event(given_first, &first);
    if (!error) error = find_event(given_last, &last);
    if (!error && ((first->flags | last->flags) & NO_TIMING || first->device != last->device)) error = INVALID_HANDLE;
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    if (!first->recorded || !last->recorded) error = INVALID_HANDLE;
    else if (first->stream->completed < first->ticket || last->stream->completed < last->ticket) error = NOT_READY;
    else *result = (float)((double)(int64_t)(last->time - first->time) * 1e-6);
    pthread_mutex_unlock(&lock);
    return done(error);
}
