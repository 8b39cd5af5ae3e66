// Streams are queues, each with a thread that carries out one operation after the other; events are places in them.
//
// An operation's number in its stream is its ticket; `completed` has passed it when the operation ended. Streams wait for each
// other through operations that wait for a ticket: the null stream's for those that block with it, and the other way round.
#include "internal.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

#define NON_BLOCKING 1u  // hipStreamNonBlocking
#define NO_TIMING 2u  // hipEventDisableTiming
#define EVENT_FLAGS 0xe0000007u
#define STACK_BYTES (1u << 20)  // callbacks run on it
#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)
#define LEAST_PRIORITY 1
#define GREATEST_PRIORITY (-1)

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;  // some operation ended
static __thread bool in_stream;  // this thread is a stream's
static __thread Stream *own_stream[MAX_DEVICES];  // hipStreamPerThread
static u64 streams_made;
__thread int default_is_per_thread;

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
        Operation *operation = stream->head;
        if (!operation) break;
        stream->head = operation->next;
        if (!stream->head) stream->tail = NULL;
        pthread_mutex_unlock(&lock);
        Error error = operation->run(operation);
        free(operation);
        pthread_mutex_lock(&lock);
        Error *failure = &state.device[stream->device].failure;
        if (error && !*failure) *failure = error;
        stream->completed++;
        pthread_cond_broadcast(&progress);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

// The stream's thread, which takes no signals: they are for the program's own.
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

static Error push(Stream *stream, Operation *operation) {
    if (!stream->started) {
        if (!start_thread(stream)) return free(operation), OUT_OF_RESOURCES;
        stream->started = true;
    }
    operation->stream = stream;
    operation->next = NULL;
    if (stream->tail) stream->tail->next = operation;
    else stream->head = operation;
    stream->tail = operation;
    stream->submitted++;
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

static Error push_wait(Stream *stream, Stream *other, u64 ticket) {
    if (other == stream || other->completed >= ticket) return SUCCESS;
    Wait *made = make_operation(sizeof *made, run_wait);
    if (!made) return OUT_OF_MEMORY;
    made->other = other, made->ticket = ticket;
    return push(stream, &made->operation);
}

static bool blocks(const Stream *stream) { return !stream->null && !(stream->flags & NON_BLOCKING); }

// Has the stream wait for what HIP's rules of the null stream say.
static Error push_default_waits(Stream *stream) {
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

// A stream that blocks with the null stream and captures: the null stream must not be used then.
static Stream *implicit_capture(Stream *stream) {
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

static void wait_for(Stream *stream, u64 ticket) {
    while (stream->completed < ticket) pthread_cond_wait(&progress, &lock);
}

// Waiting in a stream's own thread would last for ever.
static Error not_from_callbacks(void) {
    if (in_stream)
        finding("callback", NULL, "a callback of a stream waits for the GPU: that is not permitted, and would wait for itself");
    return in_stream ? NOT_SUPPORTED : SUCCESS;
}

Error device_error(int device) {
    pthread_mutex_lock(&lock);
    Error found = state.device[device].failure;
    pthread_mutex_unlock(&lock);
    return found;
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

Error wait_device(int device) {
    if (in_stream) return NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    for (Stream *stream = state.device[device].streams; stream; stream = stream->following) wait_for(stream, stream->submitted);
    Error error = state.device[device].failure;
    pthread_mutex_unlock(&lock);
    return error;
}

// -- streams -------------------------------------------------------------------------------------

static Stream *new_stream(int device, u32 flags, int priority, bool null) {
    Stream *made = make_handle(STREAM, sizeof *made);
    if (!made) return NULL;
    made->device = device, made->flags = flags, made->priority = priority, made->null = null;
    pthread_cond_init(&made->work, NULL);
    made->id = ++streams_made;
    made->following = state.device[device].streams;
    state.device[device].streams = made;
    return made;
}

Stream *default_stream(int device) {
    pthread_mutex_lock(&lock);
    Device *owner = &state.device[device];
    if (!owner->null) owner->null = new_stream(device, 0, 0, true);
    pthread_mutex_unlock(&lock);
    return owner->null;
}

static Stream *thread_stream(int device) {
    if (!own_stream[device] || !is_handle(own_stream[device], STREAM)) {
        pthread_mutex_lock(&lock);
        own_stream[device] = new_stream(device, 0, 0, false);
        if (own_stream[device]) own_stream[device]->per_thread = true;
        pthread_mutex_unlock(&lock);
    }
    return own_stream[device];
}

Error find_stream(void *given, Stream **found) {
    if (given == PER_THREAD || (!given && default_is_per_thread)) *found = thread_stream(current_device);
    else if (!given || given == LEGACY) *found = default_stream(current_device);
    else if (is_handle(given, STREAM)) *found = given;
    else {
        if (was_handle(given, STREAM)) finding("use-after-destroy", NULL, "a stream is used that was destroyed before");
        return INVALID_HANDLE;
    }
    return *found ? SUCCESS : OUT_OF_MEMORY;
}

static Error create(void **result, u32 flags, int priority) {
    Error error = begin();
    if (error) return done(error);
    if (!result || flags & ~NON_BLOCKING) return done(INVALID_VALUE);
    if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
    if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
    default_stream(current_device);
    pthread_mutex_lock(&lock);
    *result = new_stream(current_device, flags, priority, false);
    pthread_mutex_unlock(&lock);
    return done(*result ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipStreamCreate(void **result) { return create(result, 0, 0); }
API Error hipStreamCreateWithFlags(void **result, u32 flags) { return create(result, flags, 0); }
API Error hipStreamCreateWithPriority(void **result, u32 flags, int priority) { return create(result, flags, priority); }
API Error hipExtStreamCreateWithCUMask(void **result, u32 words, const u32 *mask) {
    return words && mask ? create(result, 0, 0) : done(INVALID_VALUE);
}

API Error hipStreamDestroy(void *given) {
    Stream *stream;
    Error error = begin();
    if (!error && (!given || given == LEGACY || given == PER_THREAD)) error = INVALID_HANDLE;
    if (!error) error = find_stream(given, &stream);
    if (error) return done(error);
    pthread_mutex_lock(&lock);
    stream->ended = true;
    stream->capture = NULL;
    pthread_cond_signal(&stream->work);
    wait_for(stream, stream->submitted);
    for (Stream **at = &state.device[stream->device].streams; *at; at = &(*at)->following)
        if (*at == stream) {
            *at = stream->following;
            break;
        }
    end_handle(stream, STREAM);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API Error hipStreamSynchronize(void *given) {
    WITH_STREAM(given, stream)
    if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    return done(wait_stream(stream));
}

API Error hipStreamQuery(void *given) {
    WITH_STREAM(given, stream)
    if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    pthread_mutex_lock(&lock);
    bool ready = stream->completed >= stream->submitted;
    if (stream->null)
        for (Stream *other = state.device[stream->device].streams; other; other = other->following)
            if (blocks(other) && other->completed < other->submitted) ready = false;
    error = state.device[stream->device].failure;
    pthread_mutex_unlock(&lock);
    return done(!ready ? NOT_READY : error);
}

API Error hipStreamGetFlags(void *given, u32 *flags) {
    WITH_STREAM(given, stream)
    if (!flags) return done(INVALID_VALUE);
    *flags = stream->flags;
    return SUCCESS;
}

API Error hipStreamGetPriority(void *given, int *priority) {
    WITH_STREAM(given, stream)
    if (!priority) return done(INVALID_VALUE);
    *priority = stream->priority;
    return SUCCESS;
}

API Error hipStreamGetDevice(void *given, int *device) {
    WITH_STREAM(given, stream)
    if (!device) return done(INVALID_VALUE);
    *device = stream->device;
    return SUCCESS;
}

API Error hipStreamGetId(void *given, u64 *id) {
    WITH_STREAM(given, stream)
    if (!id) return done(INVALID_VALUE);
    *id = stream->id;
    return SUCCESS;
}

API int hipGetStreamDeviceId(void *given) {
    Stream *stream;
    return begin() || find_stream(given, &stream) ? -1 : stream->device;
}

API Error hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return SUCCESS;
}

API Error hipExtStreamGetCUMask(void *given, u32 words, u32 *mask) {
    WITH_STREAM(given, stream)
    u32 units = state.device[stream->device].compute_units;
    if (!mask || words * 32 < units) return done(INVALID_VALUE);
    for (u32 i = 0; i < words; i++) mask[i] = units >= 32 * (i + 1) ? ~0u : units > 32 * i ? (1u << (units - 32 * i)) - 1 : 0;
    return SUCCESS;
}

API Error hipStreamAttachMemAsync(void *given, void *pointer, size_t bytes, u32 flags) {
    (void)bytes, (void)flags;
    WITH_STREAM(given, stream)
    return done(pointer ? SUCCESS : INVALID_VALUE);
}

// -- events --------------------------------------------------------------------------------------

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
    if (!result || flags & ~EVENT_FLAGS) return done(INVALID_VALUE);
    Event *made = make_handle(EVENT, sizeof *made);
    if (!made) return done(OUT_OF_MEMORY);
    made->flags = flags, made->device = current_device;
    *result = made;
    return SUCCESS;
}

API Error hipEventCreate(void **result) { return hipEventCreateWithFlags(result, 0); }

API Error hipEventDestroy(void *given) {
    Event *event;
    Error error = find_event(given, &event);
    if (!error) end_handle(event, EVENT);
    return done(error);
}

typedef struct {
    Operation operation;
    Event *event;
    u64 ticket;
} Record;

static Error run_record(Operation *operation) {
    Record *it = (Record *)operation;
    pthread_mutex_lock(&lock);
    if (!it->ticket || it->event->ticket == it->ticket) it->event->time = now();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// Puts the event's place behind all that the stream holds now.
Error record_event(Stream *stream, Event *event) {
    Record *made = make_operation(sizeof *made, run_record);
    if (!made) return OUT_OF_MEMORY;
    made->event = event;
    pthread_mutex_lock(&lock);
    Error error = push_default_waits(stream);
    if (error) {
        free(made);
    } else {
        made->ticket = stream->submitted + 1;
        event->capture = NULL, event->stream = stream, event->ticket = made->ticket, event->recorded = true;
        error = push(stream, &made->operation);
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
    Error error = event->recorded ? push_wait(stream, event->stream, event->ticket) : SUCCESS;
    pthread_mutex_unlock(&lock);
    return error;
}

API Error hipStreamWaitEvent(void *given, void *given_event, u32 flags) {
    Event *event;
    WITH_STREAM(given, stream)
    error = find_event(given_event, &event);
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
    bool ready = !event->recorded || event->stream->completed >= event->ticket;
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
