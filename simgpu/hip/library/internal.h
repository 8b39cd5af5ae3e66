// What the parts of the HIP library share. The server (simgpu/hip/server.py) is the other side of `connection.c`.
//
//   base/       connection.c    the server: how it is found, requests, the log of allocations
//               errors.c        names of errors, a thread's last error
//               handles.c       objects that programs hold: validated whenever they come back
//               devices.c       devices, properties, peers
//               contexts.c      contexts
//   memory/     memory.c        the arena, allocations
//               registered.c    the program's own memory
//               pointers.c      what is known of a pointer
//               advice.c        advice on memory
//               mapping.c       addresses and memory of their own, mapped by hand
//               shared.c        memory that processes share
//               pools.c         memory in the order of a stream
//               images.c        there are none
//               transfers.c     a copy or a fill: what is wrong with it, and how it is carried out
//               copies.c, copies_3d.c, fills.c   their calls
//   work/       queues.c        queues of work, waiting
//               streams.c, events.c              their calls
//               shared_events.c events that processes share
//               callbacks.c     what a stream does on the host
//               launches.c, occupancy.c          kernels
//               per_thread.c    the same calls with a default stream for each thread
//   graphs/     graphs.c        recorded work: nodes and their order
//               nodes.c         nodes by what they do
//               memory_nodes.c  nodes that allocate and free
//               user_objects.c  objects that graphs keep
//               capture.c       work recorded from streams
//               execution.c     graphs made executable
//               attributes.c    of kernels' nodes
//               dot.c           graphs as text
//   modules/    modules.c       code objects, kernels, variables
//               registration.c  what the compiler registers of a program
//               functions.c     attributes of kernels
//               compiler.c      hiprtc
//               linker.c        its linker, and the runtime's
#ifndef SIMGPU_INTERNAL_H
#define SIMGPU_INTERNAL_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define MAX_DEVICES 16

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int Error;  // hipError_t
typedef struct {
    u32 x, y, z;
} Dim3;

// hipError_t: the values that this library answers; errors.c names all of them.
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONFIGURATION = 9,
    INVALID_PITCH = 12,
    INVALID_SYMBOL = 13,
    INVALID_DEVICE_POINTER = 17,
    INVALID_DIRECTION = 21,
    MISSING_CONFIGURATION = 52,
    INVALID_DEVICE_FUNCTION = 98,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    UNSUPPORTED_LIMIT = 215,
    PEER_UNSUPPORTED = 217,
    FILE_NOT_FOUND = 301,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    PEER_ALREADY = 704,
    PEER_NOT_ENABLED = 705,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    CONTEXT_DESTROYED = 709,
    LAUNCH_FAILURE = 719,
    COOPERATIVE_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    UPDATE_FAILURE = 910,
    UNKNOWN_ERROR = 999,
};

// -- errors.c ------------------------------------------------------------------------------------

Error done(Error error);  // the error, kept as the thread's last one
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));  // a line on stderr that names us
Error missing(const char *name);  // NOT_SUPPORTED; says the name the first time
Error missing_of(const char *name, const void *first);  // the same for a call whose first argument must not be NULL
Error no_images(const char *name);  // the same, of arrays, textures and surfaces
Error no_image(const char *name, const void *first);  // the same for a call whose first argument must not be NULL

// -- handles.c -----------------------------------------------------------------------------------

typedef enum { STREAM = 1, EVENT, MODULE, FUNCTION, GRAPH, NODE, GRAPH_EXEC, POOL, PROGRAM, CONTEXT, PHYSICAL, USER_OBJECT, LINK_STATE } Kind;
typedef struct {
    u64 seal;
} Handle;  // the first member of every object

void *make_handle(Kind kind, size_t bytes);  // zeroed; NULL where memory is out
bool is_handle(const void *pointer, Kind kind);
bool was_handle(const void *pointer, Kind kind);  // destroyed before
void end_handle(void *pointer, Kind kind);

// -- connection.c --------------------------------------------------------------------------------

enum { LOAD = 2, UNLOAD, KERNEL, SYMBOL, FINDING, COMPILE, FINISH, SHARE, LINK, OCCUPANCY };  // requests; 1 is the greeting

typedef struct {
    u8 *data;
    size_t bytes;
    Error status;
} Reply;  // data is malloc'ed, with a 0 behind it

typedef struct {
    u64 memory;  // bytes
    u32 attributes;  // how many
    const int *attribute;  // pairs: number, value
    const u8 *old_properties, *properties;  // hipDeviceProp_t of HIP 5 and of HIP 6
    u32 old_bytes, bytes;
    u32 compute_units, lds, lds_granule;
    Error failure;  // of a kernel: answered until the device is reset
    u32 refused;  // times that it was
    u64 used;  // bytes allocated
    bool peer[MAX_DEVICES];  // whose memory it may reach
    struct Stream *null;
    struct Stream *streams;  // all, null first
    u32 flags;
    struct Pool *pool, *default_pool, *graph_pool;
} Device;

extern struct State {
    bool checked;  // definedness is tracked
    u32 devices;
    Device device[MAX_DEVICES];
    u8 *shadow;  // of the arena's first byte, where checked
    int shadow_file;
} state;

extern pthread_mutex_t lock;  // of everything below, but the copies themselves
extern __thread int current_device;

Error begin(void);  // connected to the server: first in every call
Error ask(u32 kind, const void *head, size_t head_bytes, const void *body, size_t body_bytes, Reply *reply);
Error ask_launches(const void *messages, size_t bytes, u32 count, void (*take)(const Reply *));  // the first error of the replies
void finding(const char *kind, void *site, const char *format, ...) __attribute__((format(printf, 3, 4)));
u64 log_position(void);

// -- devices.c -----------------------------------------------------------------------------------

enum { SPIN = 1, SCHEDULE = 7, MAP_HOST = 8, RESIZE = 16 };  // flags of a device

int hip_version(void);  // that a program was linked against, by the name under which it found this library
Error check_device(int device);  // whether there is one of the number

// -- memory ---------------------------------------------------------------------------------------

#define ARENA 0x100000000000ull
#define ARENA_BYTES (32ull << 40)
#define MODULE_BYTES (1ull << 40)  // the arena's end: the server places code objects there
#define SITES 6

typedef enum { DEVICE_MEMORY, HOST_MEMORY, MANAGED_MEMORY, REGISTERED_MEMORY, MODULE_MEMORY, MAPPED_MEMORY, SHARED_MEMORY } Memory;

typedef struct {  // what hipMemAdvise and hipMemPrefetchAsync were told of an allocation
    bool read_mostly, coarse;
    int preferred, prefetched;  // devices
    u32 accessed;  // a bit each, the host's first
} Advice;

typedef struct {
    u64 address, bytes;
    u64 number;  // the n-th
    Memory memory;
    int device;
    u32 flags;
    bool freed;
    u64 home;  // of memory that is mapped by hand: where in the arena its bytes are
    uint16_t access, read_only;  // of the same, by device: a bit each
    Advice advice;
    struct Pool *pool;  // NULL where it is of none
} Allocation;

enum { LOG_ALLOCATE = 1, LOG_FREE, LOG_PEER, LOG_UNDEFINED, LOG_UNPEER };
void log_allocation(u32 kind, const Allocation *of, void **sites);
void log_peer(u32 kind, u32 device, u32 peer);

bool is_device_memory(Memory memory);  // out of the host's reach, by HIP's rules
bool map_arena(int *descriptor);  // false where it is not to be had
int open_file_of(u32 process, int file);  // the file behind another process's descriptor; -1: it cannot be had

typedef struct {  // hipIpcMemHandle_t, hipIpcEventHandle_t: 64 bytes
    u64 seal;  // one of the two
    u32 process;
    int file;  // its descriptor of its arena's file
    u64 address, bytes;  // of the allocation, in that process
    u64 offset;  // in the allocation; of an event's page: in the file
    u64 unused[2];
} IpcHandle;
enum { IPC_MEMORY = 0x6d656d6f, IPC_EVENT = 0x65766e74 };

Error allocate_page(void **page);  // of the arena, for the library's own use; zeroed
void name_page(const void *page, IpcHandle *handle);
Error allocate(Memory memory, int device, size_t bytes, u32 flags, void *site, void **result);
Error release(void *pointer, Memory memory, Memory other, void *site, const char *call);
void revive(void *pointer, bool anew);  // device memory that was freed is there again, at its address; anew: nothing is written in it
Allocation *find_allocation(const void *pointer);  // that holds the address, freed ones too; NULL: none. Under the lock
bool look_up(const void *pointer, Allocation *copy);  // of one that is not freed
bool in_arena(const void *pointer);
void add_module_memory(u64 address, u64 bytes, int device);
void release_all(int device);
void count_release(struct Pool *pool, u64 bytes);  // of memory of a pool; under the lock
void count_allocation(struct Pool *pool, u64 bytes);
void count_graph_memory(const void *pointer, int device);  // of a node that allocates it

// -- queues.c ------------------------------------------------------------------------------------

struct Stream;
typedef struct Operation {
    struct Operation *next;
    size_t bytes;  // of all of it, to copy it
    Error (*run)(struct Operation *);  // in the stream's thread
    struct Stream *stream;
} Operation;

typedef struct Stream {
    Handle handle;
    int device;
    u32 flags;
    int priority;
    bool null, per_thread, started, ended;
    u64 id, submitted, completed;  // operations
    Operation *head, *tail;
    pthread_cond_t work;
    struct Stream *following;  // of the device
    // capture
    struct Graph *capture;
    int capture_mode;
    u64 capture_id;
    bool capture_invalid, capture_origin;
    pthread_t capturer;
    struct Node **last;  // what the next node depends on
    u32 lasts;
} Stream;

typedef struct SharedEvent SharedEvent;
typedef struct Event {
    Handle handle;
    int device;
    u32 flags;
    bool recorded;
    Stream *stream;
    u64 ticket;  // complete when the stream has completed so many
    u64 time;  // ns
    SharedEvent *shared;  // of one that processes share; NULL
    bool opened;  // it is another process's
    struct Graph *capture;  // of a stream that captures
    struct Node **last;
    u32 lasts;
} Event;

Error find_stream(void *given, Stream **found);  // NULL, 1 and 2 are the default ones; INVALID_HANDLE
void *make_operation(size_t bytes, Error (*run)(Operation *));
Error submit(Stream *stream, Operation *operation);  // queues it, or captures it; owns it
Error submit_now(Stream *stream, Operation *operation);  // the same, never captured
Stream *implicit_capture(Stream *stream);  // one that captures and that the null stream would wait for; NULL: none. Under the lock
Error wait_stream(Stream *stream);
Error wait_default(int device);  // as hipMemcpy does: for the null stream and those that block with it
Error wait_device(int device);
bool wait_all(u32 seconds);  // for all devices, so long at most; whether all is done
Error device_error(int device);
Stream *default_stream(int device);
u64 now(void);
void *make_callback(void (*call)(void *), void *data);
void read_callback(const Operation *operation, void (**call)(void *), void **data);
Error run_callback(Operation *operation);
Error record_event(Stream *stream, Event *event);
Error wait_event(Stream *stream, Event *event);
extern __thread int default_is_per_thread;  // while one of the calls that end with _spt runs

// The stream of a call; what is wrong is answered at once.
#define WITH_STREAM(GIVEN, NAME)                   \
    Stream *NAME;                                  \
    Error error = begin();                         \
    if (!error) error = find_stream(GIVEN, &NAME); \
    if (error) return done(error);

// -- transfers.c ---------------------------------------------------------------------------------

typedef struct {  // of the address `to`, or from `from` as well; rows of `width` bytes
    Operation operation;
    u8 *to;
    const u8 *from;
    size_t width, height, depth, to_pitch, from_pitch, to_slice, from_slice;
    u32 element, value;  // of a fill: bytes, value
    void *site;
    const char *call;
} Transfer;

typedef struct {  // hipPitchedPtr
    void *pointer;
    size_t pitch, width, height;
} PitchedPointer;

typedef struct {  // hipExtent
    size_t width, height, depth;
} Extent;

typedef struct {  // hipMemcpy3DParms
    void *from_array;
    size_t from_x, from_y, from_z;
    PitchedPointer from;
    void *to_array;
    size_t to_x, to_y, to_z;
    PitchedPointer to;
    size_t width, height, depth;
    int kind;
} Copy3D;

typedef struct {  // a side of HIP_MEMCPY3D
    size_t x, y, z, lod;
    int type;
    void *host, *device, *array;
    size_t pitch, height;
} DriverSide3D;

typedef struct {  // HIP_MEMCPY3D
    DriverSide3D from, to;
    size_t width, height, depth;
} DriverCopy3D;

Error copy_of_driver(const DriverCopy3D *p, const char *call, Copy3D *same);
Error make_copy(void *to, const void *from, size_t bytes, Operation **made);
Error make_copy_3d(const Copy3D *parameters, Operation **made);
Error make_fill(void *to, size_t pitch, u32 value, u32 element, size_t width, size_t height, Operation **made);
Error run_copy(Operation *operation);
Error run_fill(Operation *operation);
Error check_transfer(const Transfer *transfer, bool reads);

// -- modules --------------------------------------------------------------------------------------

typedef struct {
    u32 offset, bytes;
} Argument;

typedef struct Function {
    Handle handle;
    struct Module *module;
    u32 number;  // the server's
    u32 kernarg_bytes, explicit_bytes, arguments, max_block, lds, private_bytes, vgprs, agprs, sgprs, version;
    int attribute_lds, attribute_carveout;
    Argument *argument;
    char *name;
} Function;

typedef struct Module {
    Handle handle;
    int device;
    u32 number;
    Function **functions;
    u32 count;
} Module;

Error load_module(int device, const void *image, size_t bytes, Module **found);
Error find_function(Module *module, const char *name, Function **found);
Error find_variable(Module *module, const char *name, void **address, size_t *bytes);
Error function_of(const void *host, int device, Function **found);
Error variable_of(const void *host, int device, void **address, size_t *bytes);
size_t image_bytes(const void *image);

// -- occupancy.c ---------------------------------------------------------------------------------

#define MAX_BLOCK 1024u  // threads
#define MAX_WAVES 16  // of a block

u32 largest_block(const Function *function);  // threads
Error blocks_per_cu(const Function *function, u32 dynamic_lds, u32 blocks[MAX_WAVES]);  // that reside at once, of 1, 2, … waves

// -- launches.c ----------------------------------------------------------------------------------

typedef struct {
    Operation operation;
    Function *function;
    const void *host;  // as the program names it, where it does: the function's stub
    Dim3 size;  // work-items
    Dim3 block;
    u32 dynamic_lds, cooperative;
    u32 bytes;
    u8 arguments[];
} Launch;

enum { MAX_BATCH = 64 };
u32 batch_of(const Operation *first);  // how many of a queue's first operations are launches that may be sent at once
Error run_batch(Operation *const *operations, u32 count);  // of launches
Error run_launch(Operation *operation);
bool grid_items(Dim3 grid, Dim3 block, Dim3 *size);  // work-items of a grid of blocks; false where they are too many
Error make_launch(Function *function, Dim3 size, Dim3 block, u32 dynamic_lds, bool cooperative, void **arguments, void **extra,
                  Launch **made);

// -- capture.c -----------------------------------------------------------------------------------

Error capture(Stream *stream, Operation *operation);  // a node of the stream's graph
Error capture_record(Stream *stream, Event *event);
Error capture_wait(Stream *stream, Event *event);
Error capture_allocation(Stream *stream, void *pointer);
Error capture_free(Stream *stream, void *pointer, void *site);
Error unsafe_in_capture(void);  // CAPTURE_UNSUPPORTED where a call must not be made while some stream captures
void end_capture(Stream *stream);  // of a stream that is destroyed

#endif
