// Capture: work submitted to streams becomes nodes of a graph. Each node depends on the last nodes of its stream, and on those of
// the events that the stream waited for.
#include "graph.h"

enum { GLOBAL_MODE, THREAD_MODE, RELAXED_MODE };

// Guards the captured nodes: several threads may record in the same streams.
static pthread_mutex_t capturing = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void leave_capturing(const int *unused) { (void)unused, pthread_mutex_unlock(&capturing); }
#define WHILE_CAPTURING                                             \
    __attribute__((cleanup(leave_capturing))) const int locked = 0; \
    (void)locked, pthread_mutex_lock(&capturing)

static u64 captures;
static u32 capturing_streams;  // number of streams that began a capture
static __thread int thread_mode;

static Error set_last(Node ***last, u32 *lasts, Node *const *nodes, u32 count) {
    Node **copy = malloc((count + 1) * sizeof *copy);
    if (!copy) return OUT_OF_MEMORY;
    if (count) memcpy(copy, nodes, count * sizeof *copy);
    free(*last);
    *last = copy, *lasts = count;
    return SUCCESS;
}

static int type_of(const Operation *operation) {
    return operation->run == run_launch     ? KERNEL_NODE
           : operation->run == run_copy     ? COPY_NODE
           : operation->run == run_fill     ? FILL_NODE
           : operation->run == run_callback ? HOST_NODE
                                            : memory_node_type(operation);
}

Error capture(Stream *stream, Operation *operation) {
    WHILE_CAPTURING;
    Node *node;
    if (!stream->capture || stream->capture_invalid) return free(operation), CAPTURE_INVALIDATED;
    Error error = add_node(stream->capture, stream->last, stream->lasts, type_of(operation), operation, &node);
    return error ? error : set_last(&stream->last, &stream->lasts, &node, 1);
}

Error capture_record(Stream *stream, Event *event) {
    WHILE_CAPTURING;
    if (stream->capture_invalid) return CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    return set_last(&event->last, &event->lasts, stream->last, stream->lasts);
}

static void leave(Stream *stream) {
    capturing_streams -= stream->capture_origin;
    stream->capture = NULL, stream->capture_invalid = stream->capture_origin = false;
    free(stream->last);
    stream->last = NULL, stream->lasts = 0;
}

void end_capture(Stream *stream) {
    WHILE_CAPTURING;
    if (stream->capture) leave(stream);
}

Error capture_wait(Stream *stream, Event *event) {
    WHILE_CAPTURING;
    if (stream->capture_invalid) return CAPTURE_INVALIDATED;
    if (!event->capture) {
        if (event->recorded) stream->capture_invalid = true;
        return event->recorded ? CAPTURE_ISOLATION : SUCCESS;
    }
    if (!is_handle(event->capture, GRAPH)) return CAPTURED_EVENT;
    if (stream->null) return CAPTURE_IMPLICIT;
    for (u32 i = 0; i < event->lasts; i++) event->last[i]->joined = true;
    if (!stream->capture) {
        stream->capture = event->capture, stream->capture_id = captures;
        return set_last(&stream->last, &stream->lasts, event->last, event->lasts);
    }
    if (stream->capture != event->capture) return stream->capture_invalid = true, CAPTURE_MERGE;
    u32 count = stream->lasts + event->lasts;
    Node **both = malloc((count + 1) * sizeof *both);
    if (!both) return OUT_OF_MEMORY;
    u32 number = 0;
    for (u32 i = 0; i < count; i++) {
        Node *node = i < stream->lasts ? stream->last[i] : event->last[i - stream->lasts];
        bool known = false;
        for (u32 j = 0; j < number; j++) known = known || both[j] == node;
        if (!known) both[number++] = node;
    }
    free(stream->last);
    stream->last = both, stream->lasts = number;
    return SUCCESS;
}

static Error find_capturing(void *given, Stream **stream) {
    Error error = begin();
    return error ? error : find_stream(given, stream);
}

static Error begin_capture(void *given, int mode, Graph *graph) {
    WHILE_CAPTURING;
    Stream *stream;
    Error error = find_capturing(given, &stream);
    if (!error && (mode < GLOBAL_MODE || mode > RELAXED_MODE)) error = INVALID_VALUE;
    if (!error && stream->null) error = CAPTURE_UNSUPPORTED;
    if (!error && stream->capture) error = ILLEGAL_STATE;
    if (error) return done(error);
    stream->capture = graph ? graph : new_graph();
    if (!stream->capture) return done(OUT_OF_MEMORY);
    stream->capture_mode = mode, stream->capture_id = ++captures, stream->capturer = pthread_self();
    stream->capture_origin = true, stream->capture_invalid = false, capturing_streams++;
    return done(set_last(&stream->last, &stream->lasts, NULL, 0));
}

API Error hipStreamBeginCapture(void *stream, int mode) { return begin_capture(stream, mode, NULL); }

API Error hipStreamBeginCaptureToGraph(void *stream, Graph *graph, Node *const *needs, const void *data, size_t count, int mode) {
    WHILE_CAPTURING;
    (void)data;
    Error error = check_needs(graph, needs, count);
    if (!error) error = begin_capture(stream, mode, graph);
    Stream *found;
    if (!error && !find_capturing(stream, &found)) error = set_last(&found->last, &found->lasts, needs, (u32)count);
    return done(error);
}

static void mark_ancestors(Node *node, u64 mark) {
    if (node->mark == mark) return;
    node->mark = mark;
    for (u32 i = 0; i < node->need_count; i++) mark_ancestors(node->needs[i], mark);
}

// True if each last node of the other streams is an ancestor of the stream's last nodes, or some stream waited for it. The other
// streams stop capturing.
static bool joined(Stream *stream) {
    u64 mark = ++marks;
    bool all = true;
    for (u32 i = 0; i < stream->lasts; i++) mark_ancestors(stream->last[i], mark);
    for (u32 device = 0; device < state.devices; device++)
        for (Stream *other = state.device[device].streams; other; other = other->following) {
            if (other == stream || other->capture != stream->capture) continue;
            for (u32 i = 0; i < other->lasts; i++) all = all && (other->last[i]->mark == mark || other->last[i]->joined);
            leave(other);
        }
    return all;
}

API Error hipStreamEndCapture(void *given, Graph **graph) {
    WHILE_CAPTURING;
    Stream *stream;
    Error error = find_capturing(given, &stream);
    if (!error && !graph) error = INVALID_VALUE;
    if (!error && !stream->capture) error = ILLEGAL_STATE;
    if (!error && !stream->capture_origin) error = CAPTURE_UNMATCHED;
    if (!error && stream->capture_mode != RELAXED_MODE && !pthread_equal(stream->capturer, pthread_self()))
        error = CAPTURE_WRONG_THREAD;
    if (error) return done(error);
    pthread_mutex_lock(&building);
    bool whole = joined(stream);
    pthread_mutex_unlock(&building);
    error = stream->capture_invalid ? CAPTURE_INVALIDATED : whole ? SUCCESS : CAPTURE_UNJOINED;
    *graph = error ? NULL : stream->capture;
    leave(stream);
    return done(error);
}

// Checks a call that allocates, frees or waits, which cannot become a node. While a stream captures, HIP forbids it in the thread
// that began the capture; a global capture forbids it in all threads. It then invalidates the capture. Threads in relaxed mode
// may always call. Returns SUCCESS if the call is permitted.
Error unsafe_in_capture(void) {
    WHILE_CAPTURING;
    Error error = SUCCESS;
    if (!capturing_streams || thread_mode == RELAXED_MODE) return SUCCESS;
    pthread_mutex_lock(&lock);
    for (u32 device = 0; device < state.devices; device++)
        for (Stream *stream = state.device[device].streams; stream; stream = stream->following) {
            if (!stream->capture || !stream->capture_origin || stream->capture_mode == RELAXED_MODE) continue;
            bool own = pthread_equal(stream->capturer, pthread_self());
            if (own || (stream->capture_mode == GLOBAL_MODE && thread_mode == GLOBAL_MODE))
                stream->capture_invalid = true, error = CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&lock);
    return error;
}

// Returns CAPTURE_IMPLICIT if a query of this null stream would join a capture.
static Error askable(Stream *stream) {
    pthread_mutex_lock(&lock);
    Error error = implicit_capture(stream) ? CAPTURE_IMPLICIT : SUCCESS;
    pthread_mutex_unlock(&lock);
    return error;
}

static int capture_status(const Stream *stream) { return !stream->capture ? 0 : stream->capture_invalid ? 2 : 1; }

API Error hipStreamIsCapturing(void *given, int *status) {
    Stream *stream;
    Error error = find_capturing(given, &stream);
    if (!error && !status) error = INVALID_VALUE;
    if (!error) error = askable(stream);
    if (!error) *status = capture_status(stream);
    return done(error);
}

API Error hipStreamGetCaptureInfo_v2(void *given, int *status, u64 *id, Graph **graph, Node *const **needs, size_t *count) {
    Stream *stream;
    Error error = find_capturing(given, &stream);
    if (!error && !status) error = INVALID_VALUE;
    if (!error) error = askable(stream);
    if (error) return done(error);
    *status = capture_status(stream);
    if (*status != 1) return done(SUCCESS);
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->capture;
    if (needs) *needs = stream->last;
    if (count) *count = stream->lasts;
    return done(SUCCESS);
}

API Error hipStreamGetCaptureInfo(void *stream, int *status, u64 *id) {
    return hipStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

API Error hipStreamUpdateCaptureDependencies(void *given, Node **needs, size_t count, u32 flags) {
    WHILE_CAPTURING;
    Stream *stream;
    Error error = find_capturing(given, &stream);
    if (!error && flags > 1) error = INVALID_VALUE;
    if (!error && !stream->capture) error = ILLEGAL_STATE;
    if (!error) error = check_needs(stream->capture, needs, count);
    if (error) return done(error);
    if (flags == 1) return done(set_last(&stream->last, &stream->lasts, needs, (u32)count));
    Event more = {.capture = stream->capture, .last = needs, .lasts = (u32)count};
    return done(capture_wait(stream, &more));
}

API Error hipThreadExchangeStreamCaptureMode(int *mode) {
    if (!mode || *mode < GLOBAL_MODE || *mode > RELAXED_MODE) return done(INVALID_VALUE);
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return done(SUCCESS);
}
