// Launches: all calls that launch kernels, checks of their shapes, and messages to the server.
#include "work.h"

#include <stdio.h>

#define BUFFER_POINTER ((void *)1)  // HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
#define BUFFER_SIZE ((void *)2)
#define PARAMETERS_END ((void *)3)
#define MAX_BLOCKS_YZ 65536u  // blocks of a grid in y and in z

// -- execution -----------------------------------------------------------------------------------

typedef struct {
    u32 frame[2];  // kind, bytes that follow
    u32 function, size[3], block[3], dynamic_lds, cooperative, bytes;
    u64 log;
    u32 batch, behind;  // number of the batch; launches of the batch that follow
    u64 stream, ticket;
} Message;

// Most bytes of messages that are sent before the first reply is read. They must fit into a socket's buffer (212,992 bytes by
// Linux's net.core.wmem_default), or both sides could wait for the other to read.
#define BATCH_BYTES (32u << 10)

static size_t message_bytes(const Launch *it) { return sizeof(Message) + it->bytes; }

u32 batch_of(const Operation *first) {
    u32 count = 0;
    size_t bytes = 0;
    for (; first && first->run == run_launch && count < MAX_BATCH; first = first->next, count++) {
        bytes += message_bytes((const Launch *)first);
        if (count && bytes > BATCH_BYTES) break;
    }
    return count;
}

static void print(const Reply *reply) {  // prints the kernel's output
    if (reply->data && reply->bytes) fwrite(reply->data, 1, reply->bytes, stdout);
}

// Runs a batch. After a launch fails, the server runs none of the batch that follow, and the library sends no more.
Error run_batch(Operation *const *operations, u32 count) {
    static u32 batches;
    if (device_error(operations[0]->stream->device)) return SUCCESS;
    size_t bytes = 0;
    for (u32 i = 0; i < count; i++) bytes += message_bytes((const Launch *)operations[i]);
    u8 *messages = malloc(bytes), *at = messages;
    if (!messages) return OUT_OF_MEMORY;
    u32 batch = __atomic_add_fetch(&batches, 1, __ATOMIC_RELAXED);
    for (u32 i = 0; i < count; i++) {
        const Launch *it = (const Launch *)operations[i];
        Message message = {.frame = {1, (u32)(message_bytes(it) - sizeof message.frame)},
                           .function = it->function->number,
                           .size = {it->size.x, it->size.y, it->size.z},
                           .block = {it->block.x, it->block.y, it->block.z},
                           .dynamic_lds = it->dynamic_lds,
                           .cooperative = it->cooperative,
                           .bytes = it->bytes,
                           .log = log_position(),
                           .batch = batch,
                           .behind = count - 1 - i,
                           .stream = order_place(&it->operation),
                           .ticket = order_ticket(&it->operation)};
        memcpy(at, &message, sizeof message), memcpy(at + sizeof message, it->arguments, it->bytes);
        at += message_bytes(it);
    }
    Error error = ask_launches(operations[0]->stream->device, messages, bytes, count, print);
    free(messages);
    return error;
}

Error run_launch(Operation *operation) { return run_batch(&operation, 1); }

// -- checks and packing --------------------------------------------------------------------------

static bool buffer_of(void **extra, const u8 **buffer, size_t *bytes) {
    *buffer = NULL, *bytes = 0;
    for (; extra && *extra != PARAMETERS_END && *extra; extra += 2) {
        if (*extra == BUFFER_POINTER) *buffer = extra[1];
        else if (*extra == BUFFER_SIZE) *bytes = *(size_t *)extra[1];
        else return false;
    }
    return *buffer != NULL || !*bytes;
}

static Error bad_shape(const Function *function, Error error, const char *text, unsigned long long a, unsigned long long b) {
    char said[256];
    snprintf(said, sizeof said, text, a, b);
    finding("launch", NULL, "kernel %s: %s", function->name, said);
    return error;
}

static Error check_shape(const Function *function, Dim3 size, Dim3 block, u32 dynamic_lds) {
    const Device *device = &state.device[function->module->device];
    u64 threads = (u64)block.x * block.y * block.z;
    if (!threads || threads > UINT32_MAX) return bad_shape(function, INVALID_CONFIGURATION, "a block of %llu threads", threads, 0);
    if (!size.x || !size.y || !size.z) return bad_shape(function, INVALID_CONFIGURATION, "a grid without blocks", 0, 0);
    u32 most = largest_block(function);
    if (threads > MAX_BLOCK)
        return bad_shape(function, INVALID_CONFIGURATION, "a block of %llu threads; the GPU has at most %llu", threads, most);
    if (threads > most)
        return bad_shape(function, LAUNCH_FAILURE,
                         "a block of %llu threads; the kernel was compiled for at most %llu (__launch_bounds__)", threads, most);
    if ((u64)function->lds + dynamic_lds > device->lds)
        return bad_shape(function, OUT_OF_RESOURCES, "%llu bytes of LDS; a block has at most %llu",
                         (u64)function->lds + dynamic_lds, device->lds);
    return SUCCESS;
}

Error make_launch(Function *function, Dim3 size, Dim3 block, u32 dynamic_lds, bool cooperative, void **arguments, void **extra,
                  Launch **made) {
    Error error = check_shape(function, size, block, dynamic_lds);
    if (error) return error;
    const Device *device = &state.device[function->module->device];
    if (cooperative) {
        u64 blocks = (u64)((size.x + block.x - 1) / block.x) * ((size.y + block.y - 1) / block.y) *
                     ((size.z + block.z - 1) / block.z);
        u32 of_cu[MAX_WAVES];
        if ((error = blocks_per_cu(function, dynamic_lds, of_cu))) return error;
        u64 fit = (u64)of_cu[(block.x * block.y * block.z - 1) / 64] * device->compute_units;
        if (blocks > fit)
            return bad_shape(function, COOPERATIVE_TOO_LARGE, "a cooperative launch of %llu blocks; %llu fit the GPU at once",
                             blocks, fit);
    }
    const u8 *buffer;
    size_t given;
    if (!buffer_of(extra, &buffer, &given)) return INVALID_VALUE;
    if (function->arguments && !arguments && !buffer) return INVALID_VALUE;
    // AMD's library ignores the size, and reads on behind a short buffer; some of rocBLAS's launches lack an unused last argument.
    if (buffer && given < function->explicit_bytes)
        bad_shape(function, SUCCESS, "a buffer of %llu bytes of arguments; the kernel takes %llu: the rest is 0", given,
                  function->explicit_bytes);
    Launch *launch = make_operation(sizeof *launch + function->explicit_bytes, run_launch);
    if (!launch) return OUT_OF_MEMORY;
    launch->function = function, launch->size = size, launch->block = block;
    launch->dynamic_lds = dynamic_lds, launch->cooperative = cooperative, launch->bytes = function->explicit_bytes;
    if (buffer) memcpy(launch->arguments, buffer, given < function->explicit_bytes ? given : function->explicit_bytes);
    else
        for (u32 i = 0; i < function->arguments; i++)
            memcpy(launch->arguments + function->argument[i].offset, arguments[i], function->argument[i].bytes);
    *made = launch;
    return SUCCESS;
}

bool grid_items(Dim3 grid, Dim3 block, Dim3 *size) {
    u64 x = (u64)grid.x * block.x, y = (u64)grid.y * block.y, z = (u64)grid.z * block.z;
    *size = (Dim3){(u32)x, (u32)y, (u32)z};
    return x <= UINT32_MAX && y <= UINT32_MAX && z <= UINT32_MAX;
}

typedef struct {
    const char *call;  // the call of HIP
    void *site;
    void *stream;
    void *before, *after;
    bool cooperative;
    const void *host;
} When;

// -- memory of another runtime -------------------------------------------------------------------

// Another runtime of the program, such as PyTorch on a simulated GPU (simgpu/tools/torch/hip_memory.py), whose tensors are in the
// program's own memory. `lend` registers the memory behind numbers of a launch that may be pointers, `take_back` unregisters it.
static void (*lend)(const u64 *numbers, u32 count);
static void (*take_back)(void);

API void simgpuLendMemory(void (*before)(const u64 *, u32), void (*after)(void)) { lend = before, take_back = after; }

// Lends the memory behind the launch's arguments, if any number among them may be a pointer to memory that is not HIP's.
static bool lent(const Launch *launch) {
    const u64 smallest = 1ull << 32;  // smaller numbers are not addresses
    if (!lend) return false;
    u64 *numbers = malloc(launch->bytes + sizeof *numbers);
    u32 count = 0;
    for (u32 at = 0; numbers && at + 8 <= launch->bytes; at += 8) {
        memcpy(&numbers[count], launch->arguments + at, 8);
        count += numbers[count] >= smallest && !in_arena((void *)numbers[count]);
    }
    if (count) lend(numbers, count);
    free(numbers);
    return count > 0;
}

extern Error hipEventRecord(void *event, void *stream);

static Error launch(Function *function, Dim3 size, Dim3 block, u32 dynamic_lds, void **arguments, void **extra, When when,
                    Stream *stream) {
    Launch *made;
    Error error = device_error(stream->device);
    if (!error) error = make_launch(function, size, block, dynamic_lds, when.cooperative, arguments, extra, &made);
    if (error) return error;
    made->host = when.host, made->site = when.site;
    if (when.before) error = hipEventRecord(when.before, when.stream);
    if (error) return free(made), error;
    bool waits = !stream->capture && lent(made);
    error = submit(stream, &made->operation);
    if (waits && !error) error = wait_stream(stream);
    if (waits) take_back();
    return error || !when.after ? error : hipEventRecord(when.after, when.stream);
}

static Error launch_grid(Function *function, Dim3 grid, Dim3 block, size_t lds, void **arguments, void **extra, When when,
                         Stream *stream) {
    Dim3 size;
    if (lds > UINT32_MAX) return OUT_OF_RESOURCES;
    if (!grid_items(grid, block, &size))
        return bad_shape(function, INVALID_CONFIGURATION, "a grid of 2^32 threads or more in one dimension", 0, 0);
    return launch(function, size, block, (u32)lds, arguments, extra, when, stream);
}

static Error launch_host(const void *host, Dim3 grid, Dim3 block, size_t lds, void **arguments, When when) {
    Stream *stream;
    Function *function;
    when.host = host;
    Error error = begin();
    if (!error) error = find_stream(when.stream, &stream);
    if (!error) error = function_of(host, stream->device, &function);
    return ended(when.call, error ? error : launch_grid(function, grid, block, lds, arguments, NULL, when, stream));
}

// Launches a kernel of a module. These calls return hipErrorInvalidValue for a bad shape, except for a block without threads in a
// launch that is not cooperative.
static Error launch_module(Function *function, Dim3 grid, Dim3 block, size_t lds, void **arguments, void **extra, When when) {
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(function, FUNCTION)) error = INVALID_HANDLE;
    if (!error && find_stream(when.stream, &stream)) error = INVALID_VALUE;
    bool too_large = grid.x > INT32_MAX || grid.y > MAX_BLOCKS_YZ || grid.z > MAX_BLOCKS_YZ;
    if (!error && ((arguments && extra) || too_large)) error = INVALID_VALUE;
    if (!error) error = launch_grid(function, grid, block, lds, arguments, extra, when, stream);
    bool no_threads = !when.cooperative && (!block.x || !block.y || !block.z);
    if (error == OUT_OF_RESOURCES || (error == INVALID_CONFIGURATION && !no_threads)) error = INVALID_VALUE;
    return ended(when.call, error);
}

// -- <<<>>> --------------------------------------------------------------------------------------

enum { DEEPEST = 16 };
typedef struct {
    Dim3 grid, block;
    size_t lds;
    void *stream, *site;
} Configuration;
static __thread Configuration configurations[DEEPEST];
static __thread int depth;
static __thread void *configured;  // site of a <<<>>> whose launch follows

// Returns the site of <<<>>> for a launch by it: a stub of the compiler, which has no lines, calls the launch itself.
static void *site_of_launch(void *caller) {
    void *site = configured ? configured : caller;
    configured = NULL;
    return site;
}

API Error __hipPushCallConfiguration(Dim3 grid, Dim3 block, size_t lds, void *stream) {
    if (depth == DEEPEST) return done(INVALID_VALUE);
    configurations[depth++] = (Configuration){grid, block, lds, stream, CALLER};
    return done(SUCCESS);
}

API Error __hipPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *lds, void **stream) {
    if (!depth) return done(MISSING_CONFIGURATION);
    Configuration found = configurations[--depth];
    *grid = found.grid, *block = found.block, *lds = found.lds, *stream = found.stream, configured = found.site;
    return done(SUCCESS);
}

API Error hipLaunchKernel(const void *host, Dim3 grid, Dim3 block, void **arguments, size_t lds, void *stream) {
    return launch_host(host, grid, block, lds, arguments,
                       (When){.call = __func__, .site = site_of_launch(CALLER), .stream = stream});
}

API Error hipExtLaunchKernel(const void *host, Dim3 grid, Dim3 block, void **arguments, size_t lds, void *stream, void *before,
                             void *after, int flags) {
    (void)flags;
    return launch_host(host, grid, block, lds, arguments,
                       (When){.call = __func__, .site = CALLER, .stream = stream, .before = before, .after = after});
}

API Error hipLaunchCooperativeKernel(const void *host, Dim3 grid, Dim3 block, void **arguments, u32 lds, void *stream) {
    return launch_host(host, grid, block, lds, arguments,
                       (When){.call = __func__, .site = CALLER, .stream = stream, .cooperative = true});
}

typedef struct {
    void *host;
    Dim3 grid, block;
    void **arguments;
    size_t lds;
    void *stream;
} HostLaunch;

// True if each launch is in a stream of a different device. `stream` points to the first launch's stream; the next one is `stride`
// bytes further.
static bool are_one_a_device(const void *stream, size_t stride, int count, u32 flags) {
    bool used[MAX_DEVICES] = {false};
    if (begin() || count <= 0 || count > (int)state.devices || flags > 3) return false;
    for (int i = 0; i < count; i++) {
        Stream *found;
        if (find_stream(*(void **)((const u8 *)stream + (size_t)i * stride), &found) || used[found->device]) return false;
        used[found->device] = true;
    }
    return true;
}

static Error launch_many(const HostLaunch *list, int count, u32 flags, bool cooperative, void *site, const char *call) {
    Error error = list && are_one_a_device(&list->stream, sizeof *list, count, flags) ? SUCCESS : INVALID_VALUE;
    for (int i = 0; i < count && !error; i++)
        error = launch_host(list[i].host, list[i].grid, list[i].block, list[i].lds, list[i].arguments,
                            (When){.call = call, .site = site, .stream = list[i].stream, .cooperative = cooperative});
    return ended(call, error);
}

API Error hipExtLaunchMultiKernelMultiDevice(HostLaunch *list, int count, u32 flags) {
    return launch_many(list, count, flags, false, CALLER, __func__);
}
API Error hipLaunchCooperativeKernelMultiDevice(HostLaunch *list, int count, u32 flags) {
    return launch_many(list, count, flags, true, CALLER, __func__);
}

typedef struct {
    int kind;
    u32 reserved;
    union {
        int cooperative;
        u8 room[64];
    } value;
} LaunchAttribute;
typedef struct {
    Dim3 grid, block;
    size_t lds;
    void *stream;
    const LaunchAttribute *attributes;
    u32 count;
} LaunchConfiguration;

static bool asks_cooperative(const LaunchAttribute *attributes, u32 count) {
    for (u32 i = 0; attributes && i < count; i++)
        if (attributes[i].kind == 2) return attributes[i].value.cooperative;
    return false;
}

API Error hipLaunchKernelExC(const LaunchConfiguration *how, const void *host, void **arguments) {
    if (!how) return done(INVALID_VALUE);
    bool cooperative = asks_cooperative(how->attributes, how->count);
    return launch_host(host, how->grid, how->block, how->lds, arguments,
                       (When){.call = __func__, .site = CALLER, .stream = how->stream, .cooperative = cooperative});
}

typedef struct {
    Dim3 grid, block;
    u32 lds;
    void *stream;
    const LaunchAttribute *attributes;
    u32 count;
} DriverConfiguration;

API Error hipDrvLaunchKernelEx(const DriverConfiguration *how, Function *function, void **arguments, void **extra) {
    if (!how) return done(INVALID_VALUE);
    bool cooperative = asks_cooperative(how->attributes, how->count);
    return launch_module(function, how->grid, how->block, how->lds, arguments, extra,
                         (When){.call = __func__, .site = CALLER, .stream = how->stream, .cooperative = cooperative});
}

API Error hipModuleLaunchKernel(Function *function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream,
                                void **arguments, void **extra) {
    return launch_module(function, (Dim3){gx, gy, gz}, (Dim3){bx, by, bz}, lds, arguments, extra,
                         (When){.call = __func__, .site = CALLER, .stream = stream});
}

API Error hipModuleLaunchCooperativeKernel(Function *function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds,
                                           void *stream, void **arguments) {
    return launch_module(function, (Dim3){gx, gy, gz}, (Dim3){bx, by, bz}, lds, arguments, NULL,
                         (When){.call = __func__, .site = CALLER, .stream = stream, .cooperative = true});
}

typedef struct {
    Function *function;
    Dim3 grid, block;
    u32 lds;
    void *stream;
    void **arguments;
} ModuleLaunch;

API Error hipModuleLaunchCooperativeKernelMultiDevice(ModuleLaunch *list, u32 count, u32 flags) {
    bool fits = list && are_one_a_device(&list->stream, sizeof *list, (int)count, flags);
    Error error = fits ? SUCCESS : INVALID_VALUE;
    for (u32 i = 0; i < count && !error; i++)
        error = launch_module(list[i].function, list[i].grid, list[i].block, list[i].lds, list[i].arguments, NULL,
                              (When){.call = __func__, .site = CALLER, .stream = list[i].stream, .cooperative = true});
    return done(error);
}

// Launches a grid of x * y * z work-items. The last blocks may be partial.
API Error hipExtModuleLaunchKernel(Function *function, u32 x, u32 y, u32 z, u32 bx, u32 by, u32 bz, size_t lds, void *given,
                                   void **arguments, void **extra, void *before, void *after, u32 flags) {
    (void)flags;
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(function, FUNCTION)) error = INVALID_HANDLE;
    if (!error) error = find_stream(given, &stream);
    if (!error && (lds > UINT32_MAX || (arguments && extra))) error = INVALID_VALUE;
    return done(error ? error
                      : launch(function, (Dim3){x, y, z}, (Dim3){bx, by, bz}, (u32)lds, arguments, extra,
                               (When){.call = __func__, .site = CALLER, .stream = given, .before = before, .after = after},
                               stream));
}

API Error hipHccModuleLaunchKernel(Function *function, u32 x, u32 y, u32 z, u32 bx, u32 by, u32 bz, size_t lds, void *stream,
                                   void **arguments, void **extra, void *before, void *after) {
    return hipExtModuleLaunchKernel(function, x, y, z, bx, by, bz, lds, stream, arguments, extra, before, after, 0);
}

// The C++ name of hipExtModuleLaunchKernel: hip_ext.h declares it without extern "C".
API Error cxx_launch(Function *, u32, u32, u32, u32, u32, u32, size_t, void *, void **, void **, void *, void *, u32) __asm__(
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j");
Error cxx_launch(Function *function, u32 x, u32 y, u32 z, u32 bx, u32 by, u32 bz, size_t lds, void *stream, void **arguments,
                 void **extra, void *before, void *after, u32 flags) {
    return hipExtModuleLaunchKernel(function, x, y, z, bx, by, bz, lds, stream, arguments, extra, before, after, flags);
}

// -- launches in three calls, as in old versions of HIP ------------------------------------------

enum { SETUP_BYTES = 4096 };
static __thread u8 setup[SETUP_BYTES];

API Error hipConfigureCall(Dim3 grid, Dim3 block, size_t lds, void *stream) {
    return __hipPushCallConfiguration(grid, block, lds, stream);
}

API Error hipSetupArgument(const void *argument, size_t bytes, size_t offset) {
    if (!argument || offset > SETUP_BYTES || bytes > SETUP_BYTES - offset) return done(INVALID_VALUE);
    memcpy(setup + offset, argument, bytes);
    return done(SUCCESS);
}

API Error hipLaunchByPtr(const void *host) {
    Configuration how = {0};
    Stream *stream;
    Function *function;
    Error error = begin();
    if (!error) error = __hipPopCallConfiguration(&how.grid, &how.block, &how.lds, &how.stream);
    configured = NULL;
    if (!error) error = find_stream(how.stream, &stream);
    if (!error) error = function_of(host, stream->device, &function);
    if (error) return done(error);
    size_t bytes = SETUP_BYTES;
    void *extra[] = {BUFFER_POINTER, setup, BUFFER_SIZE, &bytes, PARAMETERS_END};
    return done(launch_grid(function, how.grid, how.block, how.lds, NULL, extra,
                            (When){.call = __func__, .site = CALLER, .stream = how.stream}, stream));
}
