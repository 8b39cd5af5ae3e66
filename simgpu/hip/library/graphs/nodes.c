// Calls that add nodes of each type, read their parameters, and change them in a graph or an executable graph.
#include "graph.h"

typedef struct {
    Dim3 block;
    void **extra, *function;
    Dim3 grid;
    void **arguments;
    u32 lds;
} KernelParameters;

typedef struct {
    void *to;
    u32 element;
    size_t height, pitch;
    u32 value;
    size_t width;
} FillParameters;

typedef struct {
    void (*call)(void *);
    void *data;
} HostParameters;

static Error kernel_operation(const KernelParameters *p, Operation **made) {
    Function *function;
    Launch *launch;
    Dim3 size;
    if (!p || !p->function) return INVALID_VALUE;
    Error error = function_of(p->function, current_device, &function);
    if (!error && !grid_items(p->grid, p->block, &size)) error = INVALID_CONFIGURATION;
    if (!error) error = make_launch(function, size, p->block, p->lds, false, p->arguments, p->extra, &launch);
    if (!error) launch->host = p->function, *made = &launch->operation;
    return error;
}

// Reads the parameters of a node, added or captured. The argument pointers stay valid until the node changes.
static Error read_kernel(Node *node, KernelParameters *p) {
    Launch *it = (Launch *)node->operation;
    void **pointers = realloc(node->pointers, (it->function->arguments + 1) * sizeof *pointers);
    if (!pointers) return OUT_OF_MEMORY;
    node->pointers = pointers;
    for (u32 i = 0; i < it->function->arguments; i++) pointers[i] = it->arguments + it->function->argument[i].offset;
    Dim3 grid = {it->size.x / it->block.x, it->size.y / it->block.y, it->size.z / it->block.z};
    *p = (KernelParameters){it->block, NULL, (void *)(it->host ? it->host : it->function), grid, pointers, it->dynamic_lds};
    return SUCCESS;
}

static Error read_fill(Node *node, FillParameters *p) {
    const Transfer *it = (const Transfer *)node->operation;
    *p = (FillParameters){it->to, it->element, it->height, it->to_pitch, it->value, it->width / it->element};
    return SUCCESS;
}

static Error read_host(Node *node, HostParameters *p) {
    read_callback(node->operation, &p->call, &p->data);
    return SUCCESS;
}

static Error read_copy(Node *node, Copy3D *p) {
    const Transfer *it = (const Transfer *)node->operation;
    if (node->given) return memcpy(p, node->raw, sizeof *p), SUCCESS;
    size_t from_rows = it->from_pitch ? it->from_slice / it->from_pitch : 1, to_rows = it->to_pitch ? it->to_slice / it->to_pitch : 1;
    *p = (Copy3D){.from = {(void *)it->from, it->from_pitch ? it->from_pitch : it->width, it->width, from_rows ? from_rows : it->height},
                  .to = {it->to, it->to_pitch ? it->to_pitch : it->width, it->width, to_rows ? to_rows : it->height},
                  .width = it->width, .height = it->height, .depth = it->depth, .kind = 4};
    return SUCCESS;
}

static Error fill_operation(const FillParameters *p, Operation **made) {
    if (!p || (p->element != 1 && p->element != 2 && p->element != 4)) return INVALID_VALUE;
    return make_fill(p->to, p->pitch, p->value, p->element, p->width, p->height, made);
}

static Error host_operation(const HostParameters *p, Operation **made) {
    if (!p || !p->call) return INVALID_VALUE;
    *made = make_callback(p->call, p->data);
    return *made ? SUCCESS : OUT_OF_MEMORY;
}

static Error add_given(Node **node, Graph *graph, Node *const *needs, size_t count, int type, Operation *operation, const void *raw,
                       size_t bytes) {
    Error error = node ? add_node(graph, needs, count, type, operation, node) : INVALID_VALUE;
    if (!error && raw) memcpy((*node)->raw, raw, bytes), (*node)->given = true;
    return error;
}

// Defines four calls for a type of node: add it, read it, change it, change it in an executable graph.
#define NODE_CALLS(NAME, TYPE, PARAMETERS, MAKE, READ)                                                                    \
    API Error hipGraphAdd##NAME##Node(Node **node, Graph *graph, Node *const *needs, size_t count, const PARAMETERS *p) { \
        Operation *operation = NULL;                                                                                      \
        Error error = begin();                                                                                            \
        if (!error) error = MAKE(p, &operation);                                                                          \
        return done(error ? error : add_given(node, graph, needs, count, TYPE, operation, p, sizeof *p));                 \
    }                                                                                                                     \
    API Error hipGraph##NAME##NodeGetParams(Node *node, PARAMETERS *p) {                                                  \
        if (!is_handle(node, NODE) || node->type != TYPE || !p) return done(INVALID_VALUE);                               \
        return done(READ(node, p));                                                                                       \
    }                                                                                                                     \
    API Error hipGraph##NAME##NodeSetParams(Node *node, const PARAMETERS *p) {                                            \
        Operation *operation = NULL;                                                                                      \
        if (!is_handle(node, NODE) || node->type != TYPE) return done(INVALID_VALUE);                                     \
        Error error = MAKE(p, &operation);                                                                                \
        if (error) return done(error);                                                                                    \
        free(node->operation);                                                                                            \
        node->operation = operation;                                                                                      \
        memcpy(node->raw, p, sizeof *p), node->given = true;                                                              \
        return done(SUCCESS);                                                                                             \
    }                                                                                                                     \
    API Error hipGraphExec##NAME##NodeSetParams(Exec *exec, Node *node, const PARAMETERS *p) {                            \
        Operation *operation = NULL;                                                                                      \
        Step *step = step_of(exec, node, TYPE);                                                                           \
        if (!step) return done(INVALID_VALUE);                                                                            \
        Error error = MAKE(p, &operation);                                                                                \
        if (error) return done(error);                                                                                    \
        free(step->operation);                                                                                            \
        step->operation = operation;                                                                                      \
        return done(SUCCESS);                                                                                             \
    }

NODE_CALLS(Kernel, KERNEL_NODE, KernelParameters, kernel_operation, read_kernel)
NODE_CALLS(Memset, FILL_NODE, FillParameters, fill_operation, read_fill)
NODE_CALLS(Host, HOST_NODE, HostParameters, host_operation, read_host)
NODE_CALLS(Memcpy, COPY_NODE, Copy3D, make_copy_3d, read_copy)

static Error add_copy(Node **node, Graph *graph, Node *const *needs, size_t count, void *to, const void *from, size_t bytes) {
    Operation *operation = NULL;
    Error error = begin();
    if (!error) error = make_copy(to, from, bytes, &operation);
    return done(error ? error : add_given(node, graph, needs, count, COPY_NODE, operation, NULL, 0));
}

static Error set_copy(Operation **operation, void *to, const void *from, size_t bytes) {
    Operation *made;
    Error error = make_copy(to, from, bytes, &made);
    if (error) return done(error);
    free(*operation);
    *operation = made;
    return SUCCESS;
}

// Returns the address at an offset in a variable; NULL if the variable is too small.
static void *in_variable(const void *symbol, size_t bytes, size_t offset) {
    void *address;
    size_t size;
    if (begin() || variable_of(symbol, current_device, &address, &size)) return NULL;
    return offset > size || bytes > size - offset ? NULL : (u8 *)address + offset;
}

static bool is_copy(Node *node) { return is_handle(node, NODE) && node->type == COPY_NODE; }

API Error hipGraphAddMemcpyNode1D(Node **node, Graph *graph, Node *const *needs, size_t count, void *to, const void *from,
                                  size_t bytes, int kind) {
    (void)kind;
    return add_copy(node, graph, needs, count, to, from, bytes);
}

API Error hipGraphMemcpyNodeSetParams1D(Node *node, void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    return is_copy(node) ? set_copy(&node->operation, to, from, bytes) : done(INVALID_VALUE);
}

API Error hipGraphExecMemcpyNodeSetParams1D(Exec *exec, Node *node, void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    Step *step = step_of(exec, node, COPY_NODE);
    return step ? set_copy(&step->operation, to, from, bytes) : done(INVALID_VALUE);
}

API Error hipGraphAddMemcpyNodeToSymbol(Node **node, Graph *graph, Node *const *needs, size_t count, const void *symbol,
                                        const void *from, size_t bytes, size_t offset, int kind) {
    (void)kind;
    return add_copy(node, graph, needs, count, in_variable(symbol, bytes, offset), from, bytes);
}

API Error hipGraphAddMemcpyNodeFromSymbol(Node **node, Graph *graph, Node *const *needs, size_t count, void *to, const void *symbol,
                                          size_t bytes, size_t offset, int kind) {
    (void)kind;
    return add_copy(node, graph, needs, count, to, in_variable(symbol, bytes, offset), bytes);
}

API Error hipGraphMemcpyNodeSetParamsToSymbol(Node *node, const void *symbol, const void *from, size_t bytes, size_t offset,
                                              int kind) {
    (void)kind;
    return is_copy(node) ? set_copy(&node->operation, in_variable(symbol, bytes, offset), from, bytes) : done(INVALID_VALUE);
}

API Error hipGraphMemcpyNodeSetParamsFromSymbol(Node *node, void *to, const void *symbol, size_t bytes, size_t offset, int kind) {
    (void)kind;
    return is_copy(node) ? set_copy(&node->operation, to, in_variable(symbol, bytes, offset), bytes) : done(INVALID_VALUE);
}

API Error hipGraphExecMemcpyNodeSetParamsToSymbol(Exec *exec, Node *node, const void *symbol, const void *from, size_t bytes,
                                                  size_t offset, int kind) {
    (void)kind;
    Step *step = step_of(exec, node, COPY_NODE);
    return step ? set_copy(&step->operation, in_variable(symbol, bytes, offset), from, bytes) : done(INVALID_VALUE);
}

API Error hipGraphExecMemcpyNodeSetParamsFromSymbol(Exec *exec, Node *node, void *to, const void *symbol, size_t bytes,
                                                    size_t offset, int kind) {
    (void)kind;
    Step *step = step_of(exec, node, COPY_NODE);
    return step ? set_copy(&step->operation, to, in_variable(symbol, bytes, offset), bytes) : done(INVALID_VALUE);
}

API Error hipGraphAddEmptyNode(Node **node, Graph *graph, Node *const *needs, size_t count) {
    Error error = begin();
    return done(error ? error : add_given(node, graph, needs, count, EMPTY_NODE, NULL, NULL, 0));
}

API Error hipGraphAddChildGraphNode(Node **node, Graph *graph, Node *const *needs, size_t count, Graph *child) {
    Graph *copy;
    Error error = is_handle(child, GRAPH) ? clone_graph(child, &copy) : INVALID_VALUE;
    if (!error) error = add_given(node, graph, needs, count, CHILD_NODE, NULL, NULL, 0);
    if (!error) (*node)->child = copy;
    return done(error);
}

API Error hipGraphChildGraphNodeGetGraph(Node *node, Graph **graph) {
    if (!is_handle(node, NODE) || node->type != CHILD_NODE || !graph) return done(INVALID_VALUE);
    *graph = node->child;
    return done(SUCCESS);
}

static Error add_event(Node **node, Graph *graph, Node *const *needs, size_t count, int type, Event *event) {
    Error error = is_handle(event, EVENT) ? add_given(node, graph, needs, count, type, NULL, NULL, 0) : INVALID_VALUE;
    if (!error) (*node)->event = event;
    return done(error);
}

static Error get_event(Node *node, int type, Event **event) {
    if (!is_handle(node, NODE) || node->type != type || !event) return done(INVALID_VALUE);
    *event = node->event;
    return SUCCESS;
}

static Error set_event(Event **at, Event *event) {
    if (!at || !is_handle(event, EVENT)) return done(INVALID_VALUE);
    *at = event;
    return SUCCESS;
}

#define EVENT_CALLS(NAME, TYPE)                                                                                         \
    API Error hipGraphAddEvent##NAME##Node(Node **node, Graph *graph, Node *const *needs, size_t count, Event *event) { \
        return add_event(node, graph, needs, count, TYPE, event);                                                       \
    }                                                                                                                   \
    API Error hipGraphEvent##NAME##NodeGetEvent(Node *node, Event **event) { return get_event(node, TYPE, event); }     \
    API Error hipGraphEvent##NAME##NodeSetEvent(Node *node, Event *event) {                                             \
        return set_event(is_handle(node, NODE) && node->type == TYPE ? &node->event : NULL, event);                     \
    }                                                                                                                   \
    API Error hipGraphExecEvent##NAME##NodeSetEvent(Exec *exec, Node *node, Event *event) {                             \
        Step *step = step_of(exec, node, TYPE);                                                                         \
        return set_event(step ? &step->event : NULL, event);                                                            \
    }

EVENT_CALLS(Record, RECORD_NODE)
EVENT_CALLS(Wait, WAIT_NODE)

// -- the driver's calls --------------------------------------------------------------------------

typedef struct {  // HIP_MEMSET_NODE_PARAMS
    void *to;
    size_t pitch;
    u32 value, element;
    size_t width, height;
} DriverFill;

static FillParameters fill_of_driver(const DriverFill *p) {
    return (FillParameters){p->to, p->element, p->height, p->pitch, p->value, p->width};
}

API Error hipDrvGraphAddMemsetNode(Node **node, Graph *graph, Node *const *needs, size_t count, const DriverFill *p,
                                   void *context) {
    (void)context;
    if (!p) return done(INVALID_VALUE);
    FillParameters same = fill_of_driver(p);
    return hipGraphAddMemsetNode(node, graph, needs, count, &same);
}

API Error hipDrvGraphExecMemsetNodeSetParams(Exec *exec, Node *node, const DriverFill *p, void *context) {
    (void)context;
    if (!p) return done(INVALID_VALUE);
    FillParameters same = fill_of_driver(p);
    return hipGraphExecMemsetNodeSetParams(exec, node, &same);
}

API Error hipDrvGraphAddMemcpyNode(Node **node, Graph *graph, Node *const *needs, size_t count, const DriverCopy3D *p,
                                   void *context) {
    (void)context;
    Copy3D same;
    Error error = begin();
    if (!error) error = copy_of_driver(p, "hipDrvGraphAddMemcpyNode", &same);
    return error ? done(error) : hipGraphAddMemcpyNode(node, graph, needs, count, &same);
}

API Error hipDrvGraphExecMemcpyNodeSetParams(Exec *exec, Node *node, const DriverCopy3D *p, void *context) {
    (void)context;
    Copy3D same;
    Error error = copy_of_driver(p, "hipDrvGraphExecMemcpyNodeSetParams", &same);
    return error ? done(error) : hipGraphExecMemcpyNodeSetParams(exec, node, &same);
}

// -- nodes of any kind ---------------------------------------------------------------------------

typedef struct {  // hipGraphNodeParams
    int type, reserved[3];
    union {
        u8 room[232];
        KernelParameters kernel;
        struct {
            int flags, reserved[3];
            Copy3D copy;
        } copy;
        FillParameters fill;
        HostParameters host;
        Graph *child;
        Event *event;
        AllocateParameters allocate;
        void *pointer;
    } of;
} NodeParameters;

API Error hipGraphAddNode(Node **node, Graph *graph, Node *const *needs, size_t count, NodeParameters *p) {
    if (!p) return done(INVALID_VALUE);
    switch (p->type) {
    case KERNEL_NODE: return hipGraphAddKernelNode(node, graph, needs, count, &p->of.kernel);
    case COPY_NODE: return hipGraphAddMemcpyNode(node, graph, needs, count, &p->of.copy.copy);
    case FILL_NODE: return hipGraphAddMemsetNode(node, graph, needs, count, &p->of.fill);
    case HOST_NODE: return hipGraphAddHostNode(node, graph, needs, count, &p->of.host);
    case CHILD_NODE: return hipGraphAddChildGraphNode(node, graph, needs, count, p->of.child);
    case EMPTY_NODE: return hipGraphAddEmptyNode(node, graph, needs, count);
    case WAIT_NODE: return hipGraphAddEventWaitNode(node, graph, needs, count, p->of.event);
    case RECORD_NODE: return hipGraphAddEventRecordNode(node, graph, needs, count, p->of.event);
    case ALLOCATE_NODE: return hipGraphAddMemAllocNode(node, graph, needs, count, &p->of.allocate);
    case FREE_NODE: return hipGraphAddMemFreeNode(node, graph, needs, count, p->of.pointer);
    default: return done(INVALID_VALUE);
    }
}

API Error hipGraphNodeSetParams(Node *node, const NodeParameters *p) {
    switch (p ? p->type : -1) {
    case KERNEL_NODE: return hipGraphKernelNodeSetParams(node, &p->of.kernel);
    case COPY_NODE: return hipGraphMemcpyNodeSetParams(node, &p->of.copy.copy);
    case FILL_NODE: return hipGraphMemsetNodeSetParams(node, &p->of.fill);
    case HOST_NODE: return hipGraphHostNodeSetParams(node, &p->of.host);
    case WAIT_NODE: return hipGraphEventWaitNodeSetEvent(node, p->of.event);
    case RECORD_NODE: return hipGraphEventRecordNodeSetEvent(node, p->of.event);
    default: return done(INVALID_VALUE);
    }
}

extern Error hipGraphExecChildGraphNodeSetParams(Exec *exec, Node *node, Graph *child);

API Error hipGraphExecNodeSetParams(Exec *exec, Node *node, const NodeParameters *p) {
    switch (p ? p->type : -1) {
    case KERNEL_NODE: return hipGraphExecKernelNodeSetParams(exec, node, &p->of.kernel);
    case COPY_NODE: return hipGraphExecMemcpyNodeSetParams(exec, node, &p->of.copy.copy);
    case FILL_NODE: return hipGraphExecMemsetNodeSetParams(exec, node, &p->of.fill);
    case HOST_NODE: return hipGraphExecHostNodeSetParams(exec, node, &p->of.host);
    case CHILD_NODE: return hipGraphExecChildGraphNodeSetParams(exec, node, p->of.child);
    case WAIT_NODE: return hipGraphExecEventWaitNodeSetEvent(exec, node, p->of.event);
    case RECORD_NODE: return hipGraphExecEventRecordNodeSetEvent(exec, node, p->of.event);
    default: return done(INVALID_VALUE);
    }
}
