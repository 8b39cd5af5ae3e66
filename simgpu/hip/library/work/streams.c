// Calls that make, use and query streams.
#include "work.h"

#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)
#define LEAST_PRIORITY 1
#define GREATEST_PRIORITY (-1)

enum { POLICY = 3, PRIORITY = 8 };  // hipLaunchAttributeID: those that a stream has
enum { AUTO = 1, BLOCKING = 4 };  // hipSynchronizationPolicy, the first and the last

static __thread Stream *own_stream[MAX_DEVICES];  // hipStreamPerThread
static u64 streams_made;
__thread int default_is_per_thread;

Stream *new_stream(int device, u32 flags, int priority, bool null) {
    Stream *made = make_handle(STREAM, sizeof *made);
    if (!made) return NULL;
    made->device = device, made->flags = flags, made->priority = priority, made->policy = AUTO, made->null = null;
    pthread_cond_init(&made->work, NULL);
    made->id = ++streams_made;
    made->following = state.device[device].streams;
    state.device[device].streams = made;
    order_stream(made);
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
        return CONTEXT_DESTROYED;
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
    end_capture(stream);
    pthread_mutex_lock(&lock);
    stream->ended = true;
    pthread_cond_signal(&stream->work);
    wait_for(stream, stream->submitted);
    for (Stream **at = &state.device[stream->device].streams; *at; at = &(*at)->following)
        if (*at == stream) {
            *at = stream->following;
            break;
        }
    end_handle(stream, STREAM);
    pthread_mutex_unlock(&lock);
    return done(SUCCESS);
}

API Error hipStreamSynchronize(void *given) {
    WITH_STREAM(given, stream)
    if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    if (!stream->null) error = unsafe_in_capture();
    return done(error ? error : wait_stream(stream));
}

API Error hipStreamQuery(void *given) {
    WITH_STREAM(given, stream)
    if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    if (!stream->null && (error = unsafe_in_capture())) return done(error);
    pthread_mutex_lock(&lock);
    bool ready = stream->completed >= stream->submitted;
    if (stream->null)
        for (Stream *other = state.device[stream->device].streams; other; other = other->following)
            if (blocks(other) && other->completed < other->submitted) ready = false;
    if (ready) order_seen(stream, stream->submitted);
    error = state.device[stream->device].failure;
    pthread_mutex_unlock(&lock);
    return done(!ready ? NOT_READY : error);
}

API Error hipStreamGetFlags(void *given, u32 *flags) {
    WITH_STREAM(given, stream)
    if (!flags || stream->null) return done(INVALID_VALUE);
    *flags = stream->flags;
    return done(SUCCESS);
}

API Error hipStreamGetPriority(void *given, int *priority) {
    WITH_STREAM(given, stream)
    if (!priority) return done(INVALID_VALUE);
    *priority = stream->priority;
    return done(SUCCESS);
}

// A priority is given when a stream is made. It can be read as an attribute, and not be changed.
API Error hipStreamSetAttribute(void *given, int attribute, const int *value) {
    WITH_STREAM(given, stream)
    if (!value || attribute != POLICY || *value < AUTO || *value > BLOCKING) return done(INVALID_VALUE);
    if (stream->capture) return stream->capture_invalid = true, done(CAPTURE_UNSUPPORTED);
    stream->policy = *value;
    return done(SUCCESS);
}

API Error hipStreamGetAttribute(void *given, int attribute, int *value) {
    WITH_STREAM(given, stream)
    if (!value || (attribute != POLICY && attribute != PRIORITY)) return done(INVALID_VALUE);
    *value = attribute == POLICY ? stream->policy : stream->priority;
    return done(SUCCESS);
}

API Error hipStreamCopyAttributes(void *to, void *from) {
    WITH_STREAM(to, stream)
    Stream *other;
    if ((error = find_stream(from, &other))) return done(error);
    stream->policy = other->policy;
    return done(SUCCESS);
}

API Error hipStreamGetDevice(void *given, int *device) {
    WITH_STREAM(given, stream)
    if (!device) return done(INVALID_VALUE);
    *device = stream->device;
    return done(SUCCESS);
}

API Error hipStreamGetId(void *given, u64 *id) {
    WITH_STREAM(given, stream)
    if (!id) return done(INVALID_VALUE);
    *id = stream->id;
    return done(SUCCESS);
}

API int hipGetStreamDeviceId(void *given) {
    Stream *stream;
    return begin() || find_stream(given, &stream) ? -1 : stream->device;
}

API Error hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return done(SUCCESS);
}

API Error hipExtStreamGetCUMask(void *given, u32 words, u32 *mask) {
    WITH_STREAM(given, stream)
    u32 units = state.device[stream->device].compute_units;
    if (!mask || words * 32 < units) return done(INVALID_VALUE);
    for (u32 i = 0; i < words; i++) mask[i] = units >= 32 * (i + 1) ? ~0u : units > 32 * i ? (1u << (units - 32 * i)) - 1 : 0;
    return done(SUCCESS);
}

API Error hipStreamAttachMemAsync(void *given, void *pointer, size_t bytes, u32 flags) {
    WITH_STREAM(given, stream)
    Allocation found;
    bool known = pointer && look_up(pointer, &found) && found.memory == MANAGED_MEMORY && (!bytes || bytes == found.bytes);
    bool fits = flags == 1 || flags == 2 || (flags == 4 && !stream->null);  // hipMemAttachGlobal, Host, Single
    return done(known && fits ? SUCCESS : INVALID_VALUE);
}
