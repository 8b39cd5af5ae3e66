/* A stand-in for libamdhip64: checks the arguments of every call as the real one's documentation asks,
   and passes the call on to tests/hip_server.py, which records it and answers for the GPU.

   One request is a header, then bytes; so is one answer. Nothing here decides about failures: the server does. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef int hipError_t;
typedef void *handle;
enum { SUCCESS = 0, INVALID_VALUE = 1, LARGEST = 1 << 20 };
enum { STREAM = 0x51, EVENT = 0x52, MODULE = 0x53, FUNCTION = 0x54 }; /* the high bytes of handles */

struct request { char name[40]; uint64_t numbers[10]; uint64_t nbytes; };
struct answer { int64_t status; uint64_t numbers[2]; uint64_t nbytes; };

static int server = -1;
static int initialized;

static void all(ssize_t (*move)(int, void *, size_t), void *at, size_t nbytes) {
    for (char *p = at; nbytes;) {
        ssize_t n = move(server, p, nbytes);
        if (n <= 0) { fprintf(stderr, "stand-in: the server is gone\n"); _exit(99); }
        p += n, nbytes -= n;
    }
}
static ssize_t put(int fd, void *p, size_t n) { return write(fd, p, n); }
static ssize_t get(int fd, void *p, size_t n) { return read(fd, p, n); }

static void open_server(void) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const char *path = getenv("SIMGPU_STAND_IN");
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (path) strncpy(where.sun_path, path, sizeof where.sun_path - 1);
    if (!path || connect(server, (struct sockaddr *)&where, sizeof where)) {
        fprintf(stderr, "stand-in: no server at SIMGPU_STAND_IN=%s\n", path ? path : "");
        _exit(99);
    }
}

/* Sends a call; what comes back in bytes goes to `into`, which has room for `room`. */
static struct answer call(struct request *r, const void *bytes, void *into, size_t room) {
    struct answer a;
    if (server < 0) open_server();
    all(put, r, sizeof *r);
    all(put, (void *)bytes, r->nbytes);
    all(get, &a, sizeof a);
    if (a.nbytes > room) { fprintf(stderr, "stand-in: %s: %zu bytes of room\n", r->name, room); _exit(99); }
    all(get, into, a.nbytes);
    if (a.status == -6) { /* what the HSA runtime does on a page fault */
        fprintf(stderr, "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f0000000000. "
                        "Reason: Page not present or supervisor privilege.\n");
        abort();
    }
    return a;
}

#define REQUEST(...) struct request r = {.name = "", .numbers = {__VA_ARGS__}}; strcpy(r.name, __func__)
#define CHECK(condition) \
    do { if (!(condition)) return violation(__func__, #condition); } while (0)
#define STARTED CHECK(initialized)

static hipError_t violation(const char *name, const char *condition) {
    struct request r = {.name = "violation"};
    char text[400];
    r.nbytes = snprintf(text, sizeof text, "%s: not so: %s", name, condition);
    call(&r, text, 0, 0);
    return INVALID_VALUE;
}
static int is(handle h, int kind) { return (uintptr_t)h >> 40 == (uintptr_t)kind; }

hipError_t hipInit(unsigned flags) {
    REQUEST(flags);
    CHECK(flags == 0);
    initialized = 1;
    return call(&r, 0, 0, 0).status;
}

static hipError_t number(struct request *r, void *out, size_t width) {
    struct answer a = call(r, 0, 0, 0);
    memcpy(out, &a.numbers[0], width);
    return a.status;
}

hipError_t hipRuntimeGetVersion(int *version) { REQUEST(0); CHECK(version); return number(&r, version, 4); }
hipError_t hipGetDeviceCount(int *count) { REQUEST(0); STARTED; CHECK(count); return number(&r, count, 4); }
hipError_t hipSetDevice(int index) { REQUEST(index); STARTED; CHECK(index >= 0); return call(&r, 0, 0, 0).status; }

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
    REQUEST(0);
    STARTED; CHECK(free_bytes); CHECK(total);
    struct answer a = call(&r, 0, 0, 0);
    *free_bytes = a.numbers[0], *total = a.numbers[1];
    return a.status;
}

/* hipDeviceProp_tR0600: 1472 bytes, gcnArchName at 1160 */
hipError_t hipGetDevicePropertiesR0600(void *properties, int index) {
    char *p = properties;
    REQUEST(index);
    STARTED; CHECK(properties); CHECK(index >= 0);
    memset(p, 0, 1472);
    struct answer a = call(&r, 0, p, 512); /* the name and the architecture, 256 bytes each */
    memcpy(p + 1160, p + 256, 256);
    memset(p + 256, 0x5a, 256);
    return a.status;
}

hipError_t hipMalloc(void **at, size_t nbytes) { REQUEST(nbytes); STARTED; CHECK(at); CHECK(nbytes); return number(&r, at, 8); }
hipError_t hipFree(void *at) { REQUEST((uintptr_t)at); STARTED; CHECK(at); return call(&r, 0, 0, 0).status; }

hipError_t hipMemcpy(void *to, const void *from, size_t nbytes, int kind) {
    REQUEST((uintptr_t)to, (uintptr_t)from, nbytes, kind);
    STARTED; CHECK(to); CHECK(from); CHECK(nbytes); CHECK(kind == 1 || kind == 2);
    r.nbytes = kind == 1 ? nbytes : 0;
    return call(&r, from, kind == 2 ? to : 0, kind == 2 ? nbytes : 0).status;
}

hipError_t hipStreamCreate(handle *stream) { REQUEST(0); STARTED; CHECK(stream); return number(&r, stream, 8); }
hipError_t hipEventCreate(handle *event) { REQUEST(0); STARTED; CHECK(event); return number(&r, event, 8); }

hipError_t hipEventRecord(handle event, handle stream) {
    REQUEST((uintptr_t)event, (uintptr_t)stream);
    STARTED; CHECK(is(event, EVENT)); CHECK(is(stream, STREAM));
    return call(&r, 0, 0, 0).status;
}

hipError_t hipEventQuery(handle event) { REQUEST((uintptr_t)event); STARTED; CHECK(is(event, EVENT)); return call(&r, 0, 0, 0).status; }
hipError_t hipEventDestroy(handle event) { REQUEST((uintptr_t)event); STARTED; CHECK(is(event, EVENT)); return call(&r, 0, 0, 0).status; }

hipError_t hipEventElapsedTime(float *milliseconds, handle before, handle after) {
    REQUEST((uintptr_t)before, (uintptr_t)after);
    STARTED; CHECK(milliseconds); CHECK(is(before, EVENT)); CHECK(is(after, EVENT));
    return number(&r, milliseconds, 4);
}

hipError_t hipModuleLoadData(handle *module, const void *image) {
    const unsigned char *p = image;
    uint64_t sections;
    uint16_t each, count;
    REQUEST(0);
    STARTED; CHECK(module); CHECK(image); CHECK(!memcmp(p, "\177ELF", 4));
    memcpy(&sections, p + 40, 8), memcpy(&each, p + 58, 2), memcpy(&count, p + 60, 2); /* e_shoff, e_shentsize, e_shnum */
    r.nbytes = sections + (uint64_t)each * count;
    struct answer a = call(&r, image, 0, 0);
    memcpy(module, &a.numbers[0], 8);
    return a.status;
}

hipError_t hipModuleGetFunction(handle *function, handle module, const char *name) {
    REQUEST((uintptr_t)module);
    STARTED; CHECK(function); CHECK(is(module, MODULE)); CHECK(name && *name);
    r.nbytes = strlen(name);
    struct answer a = call(&r, name, 0, 0);
    memcpy(function, &a.numbers[0], 8);
    return a.status;
}

hipError_t hipModuleLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned lds, handle stream, void **parameters, void **extra) {
    REQUEST((uintptr_t)f, gx, gy, gz, bx, by, bz, lds, (uintptr_t)stream);
    STARTED; CHECK(is(f, FUNCTION)); CHECK(is(stream, STREAM));
    CHECK(gx && gy && gz); CHECK(bx && by && bz); CHECK((uint64_t)bx * by * bz <= 1024);
    CHECK((uint64_t)gx * bx < 1ull << 32 && (uint64_t)gy * by < 1ull << 32 && (uint64_t)gz * bz < 1ull << 32);
    CHECK(!parameters); CHECK(extra);
    CHECK((uintptr_t)extra[0] == 1); CHECK(extra[1]); /* HIP_LAUNCH_PARAM_BUFFER_POINTER */
    CHECK((uintptr_t)extra[2] == 2); CHECK(extra[3]); /* HIP_LAUNCH_PARAM_BUFFER_SIZE */
    CHECK((uintptr_t)extra[4] == 3);                  /* HIP_LAUNCH_PARAM_END */
    CHECK(*(size_t *)extra[3] < LARGEST);
    r.nbytes = *(size_t *)extra[3];
    return call(&r, extra[1], 0, 0).status;
}

const char *hipGetErrorName(hipError_t error) {
    switch (error) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 100: return "hipErrorNoDevice";
    case 209: return "hipErrorNoBinaryForGpu";
    case 600: return "hipErrorNotReady";
    case 719: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
    }
}

const char *hipGetErrorString(hipError_t error) {
    return error == 719 ? "unspecified launch failure" : error == 2 ? "out of memory" : hipGetErrorName(error);
}
