// Streams are queues, each with a thread that runs one operation after the other. Events are places in queues.
//
// An operation's number in its stream is its ticket. `completed` reaches the ticket when the operation ends. Streams wait for each
// other through operations that wait for a ticket: the null stream waits for streams that block with it, and they wait for it.
#include "work.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

#define STACK_BYTES (1u << 20)  // callbacks run on it

pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static __thread bool in_stream;  // this thread belongs to a stream

u64 now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (u64)time.tv_sec * 1000000000ull + (u64)time.tv_nsec;
}

// -- the queue -----------------------------------------------------------------------------------

void *make_operation(size_t bytes, Error (*run)(Operation *)) {
    Operation *made = calloc(1, bytes);
    if (made) made->bytes = bytes, made->run = run;
    return made;
}

static void *work(void *given) {
    Stream *stream = given;
    in_stream = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->head && !stream->ended) pthread_cond_wait(&stream->work, &lock);
        Operation *taken[MAX_BATCH];
        u32 launches = batch_of(stream->head), count = launches ? launches : stream->head != NULL;
        if (!count) break;
        for (u32 i = 0; i < count; i++) taken[i] = stream->head, stream->head = taken[i]->next;
        if (!stream->head) stream->tail = NULL;
        pthread_mutex_unlock(&lock);
        Error error = launches ? run_batch(taken, launches) : taken[0]->run(taken[0]);
        for (u32 i = 0; i < count; i++) free(taken[i]);
        pthread_mutex_lock(&lock);
        Error *failure = &state.device[stream->device].failure;
        if (error && !*failure) *failure = error;
        stream->completed += count;
        pthread_cond_broadcast(&progress);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

// Starts the stream's thread. It takes no signals, as they are meant for the program's threads.
static bool start_thread(Stream *stream) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool fine = pthread_create(&thread, &attributes, work, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return fine;
}

Error push(Stream *stream, Operation *operation) {
    if (stream->ended) return free(operation), CONTEXT_DESTROYED;  // another thread ended it a moment ago
    if (!stream->started) {
        if (!start_thread(stream)) return free(operation), OUT_OF_RESOURCES;
        stream->started = true;
    }
    operation->stream = stream;
    operation->next = NULL;
    if (stream->tail) stream->tail->next = operation;
    else stream->head = operation;
    stream->tail = operation;
    operation->ticket = ++stream->submitted;
    order_queued(operation);
    pthread_cond_signal(&stream->work);
    return SUCCESS;
}

typedef struct {
    Operation operation;
    Stream *other;
    u64 ticket;
} Wait;

static Error run_wait(Operation *operation) {
    Wait *it = (Wait *)operation;
    pthread_mutex_lock(&lock);
    while (it->other->completed < it->ticket) pthread_cond_wait(&progress, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

Error push_wait(Stream *stream, Stream *other, u64 ticket) {
    if (other == stream) return SUCCESS;
    order_waits(stream, other, ticket);
    if (other->completed >= ticket) return SUCCESS;
    Wait *made = make_operation(sizeof *made, run_wait);
    if (!made) return OUT_OF_MEMORY;
    made->other = other, made->ticket = ticket;
    return push(stream, &made->operation);
}

bool blocks(const Stream *stream) { return !stream->null && !(stream->flags & NON_BLOCKING); }

// Makes the stream wait by HIP's rules of the null stream.
Error push_default_waits(Stream *stream) {
    Stream *null = state.device[stream->device].null;
    Error error = SUCCESS;
    if (stream == null) {
        for (Stream *other = state.device[stream->device].streams; other && !error; other = other->following)
            if (blocks(other)) error = push_wait(stream, other, other->submitted);
    } else if (blocks(stream) && null) {
        error = push_wait(stream, null, null->submitted);
    }
    return error;
}

Error submit_now(Stream *stream, Operation *operation) {
    pthread_mutex_lock(&lock);
    Error error = push_default_waits(stream);
    if (error) free(operation);
    else error = push(stream, operation);
    pthread_mutex_unlock(&lock);
    return error;
}

// Finds a capture that forbids the use of this null stream.
Stream *implicit_capture(Stream *stream) {
    if (!stream->null) return NULL;
    for (Stream *other = state.device[stream->device].streams; other; other = other->following)
        if (blocks(other) && other->capture) return other;
    return NULL;
}

Error submit(Stream *stream, Operation *operation) {
    if (stream->capture) return capture(stream, operation);
    pthread_mutex_lock(&lock);
    Stream *captured = implicit_capture(stream);
    if (captured) captured->capture_invalid = true;
    pthread_mutex_unlock(&lock);
    if (captured) return free(operation), CAPTURE_IMPLICIT;
    return submit_now(stream, operation);
}

// -- waiting -------------------------------------------------------------------------------------

void wait_for(Stream *stream, u64 ticket) {
    while (stream->completed < ticket) pthread_cond_wait(&progress, &lock);
    order_seen(stream, ticket);
}

// Reports a call that waits in a stream's own thread, as it would wait for ever.
Error not_from_callbacks(void) {
    if (in_stream)
        finding("callback", NULL, "a callback of a stream waits for the GPU: that is not permitted, and would wait for itself");
    return in_stream ? NOT_SUPPORTED : SUCCESS;
}

// Returns the device's error. A program that ignores errors may poll for ever for a value that a failed kernel did not write. On
// hardware the fault ends such a program, so it is ended here, too, after many calls.
Error device_error(int device) {
    enum { MOST = 1000000 };
    pthread_mutex_lock(&lock);
    Error found = state.device[device].failure;
    bool stubborn = found && ++state.device[device].refused == MOST;
    pthread_mutex_unlock(&lock);
    if (!stubborn) return found;
    say("the program made %d calls more after a kernel failed: it is ended, as the fault would have ended it on a GPU", MOST);
    abort();
}

Error wait_stream(Stream *stream) {
    if (not_from_callbacks()) return NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    Error error = SUCCESS;
    if (stream->null) {
        Stream *captured = implicit_capture(stream);
        if (captured) captured->capture_invalid = true, error = CAPTURE_IMPLICIT;
        for (Stream *other = state.device[stream->device].streams; other && !error; other = other->following)
            if (blocks(other)) wait_for(other, other->submitted);
    } else if (blocks(stream) && state.device[stream->device].null) {
        wait_for(state.device[stream->device].null, state.device[stream->device].null->submitted);
    }
    if (!error) wait_for(stream, stream->submitted);
    if (!error) error = state.device[stream->device].failure;
    pthread_mutex_unlock(&lock);
    return error;
}

Error wait_default(int device) {
    Stream *null = default_stream(device);
    return null ? wait_stream(null) : OUT_OF_MEMORY;
}

static const Stream *busy_stream(void) {
    for (u32 i = 0; i < state.devices; i++)
        for (Stream *stream = state.device[i].streams; stream; stream = stream->following)
            if (stream->completed < stream->submitted) return stream;
    return NULL;
}

bool wait_all(u32 seconds) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += seconds;
    pthread_mutex_lock(&lock);
    const Stream *busy = busy_stream();
    for (int late = 0; busy && !late; busy = busy_stream()) late = pthread_cond_timedwait(&progress, &lock, &end);
    pthread_mutex_unlock(&lock);
    return !busy;
}

Error wait_device(int device) {
    if (in_stream) return NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    for (Stream *stream = state.device[device].streams; stream; stream = stream->following) wait_for(stream, stream->submitted);
    Error error = state.device[device].failure;
    pthread_mutex_unlock(&lock);
    return error;
}
