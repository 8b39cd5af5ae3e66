// Connection to the server: finding it, requests and replies, the log of allocations.
//
// Requests have one socket, and the launches of each device another, so that no device waits for another's kernel. The library
// writes allocations into a log in shared memory. Each launch names a position in the log: the server first reads the log up to
// there.
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define GREETING 1
#define PROTOCOL 6
#define LOG_BYTES (64ull << 30)
#define DESCRIPTORS (3 + MAX_DEVICES)
#define SECONDS_AT_EXIT 10

struct State state;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__thread int current_device;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static enum { UNTRIED, CONNECTED, FAILED, FORKED } phase = UNTRIED;
static Error failure;  // answer of all calls if there is no server

typedef struct {
    int socket;
    pthread_mutex_t mutex;
} Channel;
static Channel requests = {-1, PTHREAD_MUTEX_INITIALIZER};
static Channel launches[MAX_DEVICES];  // one of each device

// -- the log -------------------------------------------------------------------------------------

static Entry *entries;
static u64 entry_count;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

void log_entry(Entry entry, void **sites) {
    for (int i = 0; sites && i < SITES; i++) entry.sites[i] = (u64)sites[i];
    pthread_mutex_lock(&writing);
    if (entries && (entry_count + 1) * sizeof(Entry) <= LOG_BYTES) {
        entries[entry_count] = entry;
        __atomic_store_n(&entry_count, entry_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&writing);
}

void log_allocation(u32 kind, const Allocation *of, void **sites) {
    log_entry((Entry){kind, (u32)of->device, (uint16_t)of->memory, is_coarse(of), of->access, of->read_only, of->address, of->bytes, of->number, {0}, of->home},
              sites);
}

void log_peer(u32 kind, u32 device, u32 peer) { log_entry((Entry){.kind = kind, .device = device, .memory = (uint16_t)peer}, NULL); }

u64 log_position(void) { return __atomic_load_n(&entry_count, __ATOMIC_ACQUIRE); }

static int shared_memory(const char *name, u64 bytes) {
    int made = (int)syscall(SYS_memfd_create, name, 1u /* close on exec */);
    if (made >= 0 && ftruncate(made, (off_t)bytes) < 0) {
        close(made);
        return -1;
    }
    return made;
}

// -- messages ------------------------------------------------------------------------------------

static bool send_all(int socket, const void *data, size_t bytes) {
    for (const u8 *at = data; bytes;) {
        ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int socket, void *data, size_t bytes) {
    for (u8 *at = data; bytes;) {
        ssize_t got = recv(socket, at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static bool receive_reply(int socket, Reply *reply) {
    struct {
        int status;
        u32 bytes;
    } head;
    if (!receive_all(socket, &head, sizeof head)) return false;
    reply->status = head.status;
    reply->bytes = head.bytes;
    reply->data = malloc((size_t)head.bytes + 1);
    if (!reply->data) return false;
    reply->data[head.bytes] = 0;
    return receive_all(socket, reply->data, head.bytes);
}

static Error lost(void) {
    static bool said;
    if (!said) say("the simulator ended; HIP calls answer hipErrorUnknown from here on");
    said = true;
    return UNKNOWN_ERROR;
}

// Sends a request and reads its reply, unless `reply` is NULL; returns the reply's status.
static Error exchange(Channel *channel, u32 kind, const void *head, size_t head_bytes, const void *body, size_t body_bytes,
                      Reply *reply) {
    u32 frame[2] = {kind, (u32)(head_bytes + body_bytes)};
    u8 small[512];
    if (reply) *reply = (Reply){0};
    if (head_bytes + body_bytes > UINT32_MAX) return INVALID_VALUE;
    pthread_mutex_lock(&channel->mutex);
    bool fine;
    if (sizeof frame + head_bytes + body_bytes <= sizeof small) {  // one packet
        memcpy(small, frame, sizeof frame);
        if (head_bytes) memcpy(small + sizeof frame, head, head_bytes);
        if (body_bytes) memcpy(small + sizeof frame + head_bytes, body, body_bytes);
        fine = send_all(channel->socket, small, sizeof frame + head_bytes + body_bytes);
    } else {
        fine = send_all(channel->socket, frame, sizeof frame) && send_all(channel->socket, head, head_bytes) &&
               send_all(channel->socket, body, body_bytes);
    }
    if (fine && reply) fine = receive_reply(channel->socket, reply);
    pthread_mutex_unlock(&channel->mutex);
    if (fine) return reply ? reply->status : SUCCESS;
    if (reply) free(reply->data), reply->data = NULL;
    return lost();
}

Error ask(u32 kind, const void *head, size_t head_bytes, const void *body, size_t body_bytes, Reply *reply) {
    return exchange(&requests, kind, head, head_bytes, body, body_bytes, reply);
}

Error ask_launches(int device, const void *messages, size_t bytes, u32 count, void (*take)(const Reply *)) {
    Error error = SUCCESS;
    Channel *channel = &launches[device];
    pthread_mutex_lock(&channel->mutex);
    bool fine = send_all(channel->socket, messages, bytes);
    for (u32 i = 0; i < count && fine; i++) {
        Reply reply = {0};
        fine = receive_reply(channel->socket, &reply);
        if (fine) take(&reply);
        if (fine && !error) error = reply.status;
        free(reply.data);
    }
    pthread_mutex_unlock(&channel->mutex);
    return fine ? error : lost();
}

// Returns the program's innermost call; NULL if unknown.
static void *outer_call(void) {
    enum { DEEP = 24 };
    void *frames[DEEP];
    Dl_info own, other;
    int found = dladdr((void *)outer_call, &own) ? backtrace(frames, DEEP) : 0;
    for (int i = 0; i < found; i++)
        if (dladdr(frames[i], &other) && other.dli_fbase != own.dli_fbase) return frames[i];
    return NULL;
}

void finding(const char *kind, void *site, const char *format, ...) {
    if (phase != CONNECTED) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!site) site = outer_call();
    struct {
        u64 site;
        char kind[32];
    } head = {(u64)site, {0}};
    strncpy(head.kind, kind, sizeof head.kind - 1);
    ask(FINDING, &head, sizeof head, text, strlen(text), NULL);
}

// -- connecting ----------------------------------------------------------------------------------

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, (struct sockaddr *)&address, sizeof address) < 0) {
        close(made);
        return -1;
    }
    return made;
}

// Starts a server by the command in SIMGPU_HIP_SERVER; its last argument is the descriptor of the server's end of a socket.
static int start_server(const char *command) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return -1;
    char line[4096];
    if (snprintf(line, sizeof line, "%s %d </dev/null &", command, ends[1]) >= (int)sizeof line) {
        close(ends[0]), close(ends[1]);
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        fcntl(ends[1], F_SETFD, 0);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return -1;
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    return ends[0];
}

static bool greet(int socket, const int *descriptors) {
    struct {
        u32 frame[2];
        u32 protocol, process;
        u64 arena, arena_bytes, module_bytes;
        char path[1024];
    } hello = {{GREETING, sizeof hello - 8}, PROTOCOL, (u32)getpid(), arena_start, ARENA_BYTES, MODULE_BYTES, {0}};
    if (readlink("/proc/self/exe", hello.path, sizeof hello.path - 1) < 0) hello.path[0] = 0;
    struct iovec part = {&hello, sizeof hello};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
    } rights = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights.room};
    rights.header = (struct cmsghdr){CMSG_LEN(DESCRIPTORS * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&rights.header), descriptors, DESCRIPTORS * sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof hello;
}

typedef struct {
    const u8 *at, *end;
} Cursor;

static u32 number(Cursor *cursor) {
    u32 value = 0;
    if (cursor->end - cursor->at >= 4) memcpy(&value, cursor->at, 4);
    cursor->at += 4;
    return value;
}

static const u8 *blob(Cursor *cursor, u32 *bytes) {
    *bytes = number(cursor);
    const u8 *found = cursor->at;
    cursor->at += *bytes;
    return found;
}

// Reads the server's answer to the greeting: its options, then the devices. The caller keeps the bytes: properties point into them.
static bool configure(const Reply *reply) {
    Cursor cursor = {reply->data, reply->data + reply->bytes};
    state.fill = number(&cursor), state.checked = state.fill;
    state.devices = number(&cursor);
    if (state.devices > MAX_DEVICES) return false;
    for (u32 i = 0; i < state.devices; i++) {
        Device *device = &state.device[i];
        device->memory = number(&cursor);
        device->memory |= (u64)number(&cursor) << 32;
        device->compute_units = number(&cursor), device->lds = number(&cursor), device->lds_granule = number(&cursor);
        device->old_properties = blob(&cursor, &device->old_bytes);
        device->properties = blob(&cursor, &device->bytes);
        device->attribute = (const int *)blob(&cursor, &device->attributes);
        device->attributes /= 8;
        device->peer[i] = true, device->flags = SPIN;
    }
    return cursor.at == cursor.end;
}

static void in_child_process(void) {
    if (phase == CONNECTED || phase == FAILED) phase = FORKED;
}

static Error start(void) {
    const char *path = getenv("SIMGPU_HIP_SOCKET"), *command = getenv("SIMGPU_HIP_SERVER");
    if (!path && !command) {
        say("no simulator: start the program with `simgpu hip`, or set the environment with `eval \"$(simgpu hip --env)\"`");
        return NO_DEVICE;
    }
    int arena = -1, descriptors[DESCRIPTORS];
    if (!map_arena(&arena)) {
        say("no range of %d TiB of addresses can be mapped (a limit of address space, ulimit -v?)", (int)(ARENA_BYTES >> 40));
        return OUT_OF_MEMORY;
    }
    int log = shared_memory("simgpu-log", LOG_BYTES), shadow = shared_memory("simgpu-shadow", ARENA_BYTES);
    if (log < 0 || shadow < 0) return OUT_OF_MEMORY;
    descriptors[0] = arena, descriptors[1] = log, descriptors[2] = shadow;
    for (int i = 0; i < MAX_DEVICES; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return OUT_OF_MEMORY;
        pthread_mutex_init(&launches[i].mutex, NULL);
        launches[i].socket = pair[0], descriptors[3 + i] = pair[1];
    }
    int socket = path ? connect_to(path) : start_server(command);
    if (socket < 0) {
        say("the simulator cannot be reached: %s", strerror(errno));
        return NO_DEVICE;
    }
    Reply reply = {0};
    bool fine = greet(socket, descriptors) && receive_reply(socket, &reply) && reply.status == SUCCESS && configure(&reply);
    for (int i = 0; i < MAX_DEVICES; i++) close(descriptors[3 + i]);
    if (!fine) {
        say("the simulator did not start: %s", reply.data && reply.bytes ? (char *)reply.data : "it ended before it answered");
        return NO_DEVICE;
    }
    int all = PROT_READ | PROT_WRITE;
    entries = mmap(NULL, LOG_BYTES, all, MAP_SHARED | MAP_NORESERVE, log, 0);
    void *mapped = state.checked ? mmap(NULL, ARENA_BYTES, all, MAP_SHARED | MAP_NORESERVE, shadow, 0) : NULL;
    close(log);
    if (entries == MAP_FAILED || mapped == MAP_FAILED) return entries = NULL, OUT_OF_MEMORY;
    state.shadow = mapped, state.shadow_file = shadow;
    requests.socket = socket;
    pthread_atfork(NULL, NULL, in_child_process);
    return SUCCESS;
}

Error begin(void) {
    if (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) == CONNECTED) return SUCCESS;
    pthread_mutex_lock(&starting);
    if (phase == UNTRIED) {
        failure = start();
        __atomic_store_n(&phase, failure ? FAILED : CONNECTED, __ATOMIC_RELEASE);
    } else if (phase == FORKED) {
        if (!failure) say("a process forked after its parent called HIP: it has no GPU, as on hardware; fork before, or exec");
        failure = NOT_INITIALIZED;
    }
    Error answer = phase == CONNECTED ? SUCCESS : failure;
    pthread_mutex_unlock(&starting);
    return answer;
}

// Runs at the program's end: waits for queued work, then for the server's report of its findings. It gives up after a while:
// otherwise a kernel that spins would keep the program for all of its budget, and a stream that waits for a value for ever.
__attribute__((destructor)) static void finish(void) {
    if (phase != CONNECTED) return;
    if (!wait_all(SECONDS_AT_EXIT)) {
        say("the program ended %d s ago and its GPU still works: that is not waited for, and what it would find is not told",
            SECONDS_AT_EXIT);
        return;
    }
    Reply reply;
    char *failed = failed_calls();
    ask(FINISH, NULL, 0, failed, failed ? strlen(failed) : 0, &reply);
    free(failed);
    free(reply.data);
}
