// Declarations that the parts of the HIP library share. `connection.c` talks to the server (simgpu/hip/server.py).
//
//   base/       connection.c    the connection to the server, requests, the log of allocations
//               errors.c        names of errors, a thread's last error
//               handles.c       objects that programs hold, and checks of them
//               devices.c       devices, properties, peers
//               contexts.c      contexts
//   memory/     memory.c        the arena, allocations
//               registered.c    the program's own memory
//               pointers.c      queries about a pointer
//               advice.c        advice on memory
//               mapping.c       reserved addresses, and memory mapped there by hand
//               shared.c        memory that processes share
//               pools.c         memory in the order of a stream
//               images.c        arrays and textures: devices have none
//               transfers.c     copies and fills: checks, and execution
//               copies.c, copies_3d.c, fills.c   calls that copy or fill
//   work/       queues.c        queues of work, waiting
//               order.c         the log of work: what is queued, what waits for what
//               streams.c, events.c              calls for streams and events
//               shared_events.c events that processes share
//               callbacks.c     work that a stream does on the host
//               launches.c, occupancy.c          kernels
//               per_thread.c    the same calls with a default stream for each thread
//   graphs/     graphs.c        recorded work: nodes and their order
//               nodes.c         nodes by what they do
//               memory_nodes.c  nodes that allocate and free
//               user_objects.c  objects that graphs keep
//               capture.c       work recorded from streams
//               execution.c     graphs made executable
//               attributes.c    attributes of kernel nodes
//               dot.c           graphs as text
//   modules/    modules.c       code objects, kernels, variables
//               registration.c  binaries, kernels and variables that compiled programs register
//               functions.c     attributes of kernels
//               compiler.c      hiprtc
//               linker.c        the linkers of hiprtc and of the runtime
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

// hipError_t: the values that this library returns; errors.c names all of them.
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

Error ended(const char *call, Error error);  // returns the error, keeps it as the thread's last one, counts and traces it
#define done(error) ended(__func__, error)
char *failed_calls(void);  // of this process, a line each: call, error and times, apart by tabs; the caller frees them
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));  // prints a line on stderr
Error missing(const char *name);  // NOT_SUPPORTED; prints the name the first time
Error missing_of(const char *name, const void *first);  // the same for a call whose first argument must not be NULL
Error no_images(const char *name);  // NOT_SUPPORTED, for arrays, textures and surfaces
Error no_image(const char *name, const void *first);  // the same for a call whose first argument must not be NULL

// -- handles.c -----------------------------------------------------------------------------------

typedef enum { STREAM = 1, EVENT, MODULE, FUNCTION, GRAPH, NODE, GRAPH_EXEC, POOL, PROGRAM, CONTEXT, PHYSICAL, USER_OBJECT, LINK_STATE } Kind;
typedef struct {
    u64 seal;
} Handle;  // the first member of every object

void *make_handle(Kind kind, size_t bytes);  // zeroed; NULL if there is no memory left
bool is_handle(const void *pointer, Kind kind);
bool was_handle(const void *pointer, Kind kind);  // true if the object is destroyed
void end_handle(void *pointer, Kind kind);

// -- connection.c --------------------------------------------------------------------------------

enum { LOAD = 2, UNLOAD, KERNEL, SYMBOL, FINDING, COMPILE, FINISH, SHARE, LINK, OCCUPANCY, NAME };  // requests; 1 is the greeting

typedef struct {
    u8 *data;
    size_t bytes;
    Error status;
} Reply;  // data is malloc'ed, and ends with an extra 0

typedef struct {
    u64 memory;  // bytes
    u32 attributes;  // number of attributes
    const int *attribute;  // pairs: number, value
    const u8 *old_properties, *properties;  // hipDeviceProp_t of HIP 5 and of HIP 6
    u32 old_bytes, bytes;
    u32 compute_units, lds, lds_granule;
    Error failure;  // error of a kernel: calls return it until the device is reset
    u32 refused;  // number of calls that returned `failure`
    u64 used;  // bytes allocated
    bool peer[MAX_DEVICES];  // devices whose memory it may access
    struct Stream *null;
    struct Stream *streams;  // all streams of the device, newest first
    u32 flags;
    struct Pool *pool, *default_pool, *graph_pool;
} Device;

extern struct State {
    bool checked;  // definedness is tracked
    u32 fill;  // dword that undefined device memory holds, if checked
    u32 devices;
    Device device[MAX_DEVICES];
    u8 *shadow;  // shadow of the arena's first byte, if checked
    int shadow_file;
} state;

extern pthread_mutex_t lock;  // guards everything below, except running copies
extern __thread int current_device;

Error begin(void);  // connects to the server: every call starts with it
Error ask(u32 kind, const void *head, size_t head_bytes, const void *body, size_t body_bytes, Reply *reply);
// Sends launches of a device; returns the replies' first error.
Error ask_launches(int device, const void *messages, size_t bytes, u32 count, void (*take)(const Reply *));
void finding(const char *kind, void *site, const char *format, ...) __attribute__((format(printf, 3, 4)));
u64 log_position(void);

// -- devices.c -----------------------------------------------------------------------------------

enum { SPIN = 1, SCHEDULE = 7, MAP_HOST = 8, RESIZE = 16 };  // flags of a device

int hip_version(void);  // version that the program was linked against, by the name under which it loads this library
Error check_device(int device);  // INVALID_DEVICE if there is no device of this number

// -- memory ---------------------------------------------------------------------------------------

extern u64 arena_start;  // address of the arena's first byte, a constant once it is mapped
#define ARENA_BYTES (32ull << 40)
#define MODULE_BYTES (1ull << 40)  // the arena's end: the server places code objects there
#define SITES 6

typedef enum { DEVICE_MEMORY, HOST_MEMORY, MANAGED_MEMORY, REGISTERED_MEMORY, MODULE_MEMORY, MAPPED_MEMORY, SHARED_MEMORY } Memory;

typedef struct {  // advice on an allocation, by hipMemAdvise and hipMemPrefetchAsync
    bool read_mostly, coarse;
    int preferred, prefetched;  // devices
    u32 accessed;  // a bit for each device, the host's first
} Advice;

typedef struct {
    u64 address, bytes;
    u64 number;  // position in the order of allocations
    Memory memory;
    int device;
    u32 flags;
    bool freed;
    u64 home;  // memory mapped by hand: address of its bytes in the arena
    uint16_t access, read_only;  // memory mapped by hand: a bit for each device
    Advice advice;
    struct Pool *pool;  // NULL if it is from no pool
} Allocation;

enum {
    LOG_ALLOCATE = 1, LOG_FREE, LOG_PEER, LOG_UNDEFINED, LOG_UNPEER,  // memory
    LOG_STREAM, LOG_QUEUED, LOG_READS, LOG_WRITES, LOG_WAITS, LOG_SEEN, LOG_UNKNOWN  // work, see order.c
};
typedef struct {
    u32 kind, device;
    uint16_t memory, coarse, access, read_only;
    u64 address, bytes, number;
    u64 sites[SITES];
    u64 home;
} Entry;
void log_entry(Entry entry, void **sites);
void log_allocation(u32 kind, const Allocation *of, void **sites);
void log_peer(u32 kind, u32 device, u32 peer);
void call_sites(void *site, void **sites);  // addresses of a call and of its callers, from the program's own code on

bool is_coarse(const Allocation *of);  // true if other devices see accesses only between kernels
bool is_device_memory(Memory memory);  // true if the host must not access it, by HIP's rules
bool map_arena(int *descriptor);  // false if it fails
int open_file_of(u32 process, int file);  // opens the file of another process's descriptor; -1 if it fails

typedef struct {  // hipIpcMemHandle_t, hipIpcEventHandle_t: 64 bytes
    u64 seal;  // IPC_MEMORY or IPC_EVENT
    u32 process;
    int file;  // descriptor of that process's arena
    u64 address, bytes;  // allocation in that process
    u64 offset;  // memory: offset in the allocation; event: offset of its page in the file
    u64 start;  // of that process's arena
    u64 unused;
} IpcHandle;
enum { IPC_MEMORY = 0x6d656d6f, IPC_EVENT = 0x65766e74 };

Error allocate_page(void **page);  // a page of the arena for the library's own use; zeroed
void name_page(const void *page, IpcHandle *handle);
Error allocate(Memory memory, int device, size_t bytes, u32 flags, void *site, void **result);
Error release(void *pointer, Memory memory, Memory other, void *site, const char *call);
void revive(void *pointer, bool anew);  // makes freed device memory valid again, at its address; anew: its bytes are undefined
Allocation *find_allocation(const void *pointer);  // allocation with this address, even if freed; NULL: none. Hold the lock
bool look_up(const void *pointer, Allocation *copy);  // copies the allocation with this address; false if none, or freed
bool in_arena(const void *pointer);
void add_module_memory(u64 address, u64 bytes, int device);
void release_all(int device);
void count_release(struct Pool *pool, u64 bytes);  // hold the lock
void count_allocation(struct Pool *pool, u64 bytes);  // hold the lock
void count_graph_memory(const void *pointer, int device);  // counts the memory of a node that allocates

// -- queues.c ------------------------------------------------------------------------------------

struct Stream;
typedef struct Operation {
    struct Operation *next;
    size_t bytes;  // size of the whole operation, for copies
    Error (*run)(struct Operation *);  // runs in the stream's thread
    struct Stream *stream;
    u64 ticket;  // its number in the stream
    u64 branch, branch_ticket;  // order.c: its place in a graph's launch; 0: none
} Operation;

typedef struct Stream {
    Handle handle;
    int device;
    u32 flags;
    int priority;
    int policy;  // hipSynchronizationPolicy: how the host waits, which changes nothing here
    bool null, per_thread, started, ended;
    u64 id, submitted, completed, seen;  // numbers of operations; seen: those that the host knows to be complete
    Operation *head, *tail;
    pthread_cond_t work;
    struct Stream *following;  // next stream of the device
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
    u64 ticket;  // number of operations that the stream completes before the event is done
    u64 time;  // ns
    SharedEvent *shared;  // NULL unless processes share it
    bool opened;  // another process made it
    struct Graph *capture;  // graph, if a stream that captures recorded it
    struct Node **last;
    u32 lasts;
} Event;

Error find_stream(void *given, Stream **found);  // NULL, 1 and 2 are the default streams; INVALID_HANDLE if none
void *make_operation(size_t bytes, Error (*run)(Operation *));
Error submit(Stream *stream, Operation *operation);  // queues or captures the operation, and owns it
Error submit_now(Stream *stream, Operation *operation);  // queues the operation, and owns it
Stream *implicit_capture(Stream *stream);  // stream that captures and that the null stream waits for; NULL: none. Hold the lock
Error wait_stream(Stream *stream);
Error wait_default(int device);  // waits as hipMemcpy does, for the null stream and the streams that block with it
Error wait_device(int device);
bool wait_all(u32 seconds);  // waits for all devices, at most this long; true if all work is done
Error device_error(int device);
Stream *default_stream(int device);
u64 now(void);
void *make_callback(void (*call)(void *), void *data);
void read_callback(const Operation *operation, void (**call)(void *), void **data);
Error run_callback(Operation *operation);
Error run_value_wait(Operation *operation);
Error record_event(Stream *stream, Event *event);
Error wait_event(Stream *stream, Event *event);
extern __thread int default_is_per_thread;  // set while a call runs whose name ends with _spt

// Finds the stream of a call; returns from the call if there is an error.
#define WITH_STREAM(GIVEN, NAME)                   \
    Stream *NAME;                                  \
    Error error = begin();                         \
    if (!error) error = find_stream(GIVEN, &NAME); \
    if (error) return done(error);

// -- transfers.c ---------------------------------------------------------------------------------

typedef struct {  // a fill of `to`, or a copy from `from`; rows of `width` bytes
    Operation operation;
    u8 *to;
    const u8 *from;
    size_t width, height, depth, to_pitch, from_pitch, to_slice, from_slice;
    u32 element, value;  // fill: bytes of an element, its value
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

// -- order.c -------------------------------------------------------------------------------------

u64 order_graph(Stream *stream, u32 branches);  // returns the first of new branches; 0: nothing is logged
void order_follows(u64 branch, u64 after, u64 other, u64 ticket);  // a branch's work after a ticket follows another's ticket
void order_follows_stream(u64 branch, u64 after, const Stream *stream);  // and what the stream follows so far
void order_stream_follows(const Stream *stream, u64 branch, u64 ticket);
void order_callback(const Operation *operation);
void order_at_once(Transfer *transfer);  // logs a transfer that the calling thread does itself

// -- pools.c -------------------------------------------------------------------------------------

typedef struct {
    Operation operation;
    void *pointer, *site;
} PoolOperation;
Error run_release(Operation *operation);
Error run_allocation(Operation *operation);

// -- modules --------------------------------------------------------------------------------------

typedef struct {
    u32 offset, bytes;
} Argument;

typedef struct Function {
    Handle handle;
    struct Module *module;
    u32 number;  // number at the server
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
Error blocks_per_cu(const Function *function, u32 dynamic_lds, u32 blocks[MAX_WAVES]);  // resident blocks of 1, 2, … waves

// -- launches.c ----------------------------------------------------------------------------------

typedef struct {
    Operation operation;
    Function *function;
    const void *host;  // the function's stub, if the program launched by it
    void *site;
    Dim3 size;  // work-items
    Dim3 block;
    u32 dynamic_lds, cooperative;
    u32 bytes;
    u8 arguments[];
} Launch;

enum { MAX_BATCH = 64 };
u32 batch_of(const Operation *first);  // number of launches at a queue's head that may be sent together
Error run_batch(Operation *const *operations, u32 count);  // runs launches
Error run_launch(Operation *operation);
bool grid_items(Dim3 grid, Dim3 block, Dim3 *size);  // work-items of a grid of blocks; false if they are too many
Error make_launch(Function *function, Dim3 size, Dim3 block, u32 dynamic_lds, bool cooperative, void **arguments, void **extra,
                  Launch **made);

// -- capture.c -----------------------------------------------------------------------------------

Error capture(Stream *stream, Operation *operation);  // adds a node to the stream's graph
Error capture_record(Stream *stream, Event *event);
Error capture_wait(Stream *stream, Event *event);
Error capture_allocation(Stream *stream, void *pointer);
Error capture_free(Stream *stream, void *pointer, void *site);
Error unsafe_in_capture(void);  // CAPTURE_UNSUPPORTED if the call is forbidden while some stream captures
void end_capture(Stream *stream);  // ends the capture of a stream that is destroyed

#endif
