// Graphs: work that is recorded, captured from streams or added node by node, and then launched as a whole.
//
// A node holds an operation as a stream would queue it. A graph that is made executable becomes a list of copies in an order that its
// dependencies allow; a launch queues the list in one stream.
#include "graph.h"

typedef struct {
    Node *node;
    Operation *operation;
    Event *event;
    bool enabled;
} Step;

typedef struct {
    Handle handle;
    Step *steps;
    u32 count;
    u64 flags;
} Exec;

pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;
u64 marks;

// -- building ------------------------------------------------------------------------------------

Graph *new_graph(void) { return make_handle(GRAPH, sizeof(Graph)); }

static bool depends(Node *node, Node *on) {
    for (u32 i = 0; i < node->need_count; i++)
        if (node->needs[i] == on) return true;
    return false;
}

static bool add_need(Node *node, Node *on) {
    if (depends(node, on)) return true;
    Node **grown = realloc(node->needs, (node->need_count + 1) * sizeof *grown);
    if (!grown) return false;
    node->needs = grown;
    grown[node->need_count++] = on;
    return true;
}

Error check_needs(Graph *graph, Node *const *needs, size_t count) {
    if (!is_handle(graph, GRAPH) || (count && !needs)) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!is_handle(needs[i], NODE) || needs[i]->graph != graph) return INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (needs[i] == needs[j]) return INVALID_VALUE;
    }
    return SUCCESS;
}

// A node of the graph, which owns the operation.
Error add_node(Graph *graph, Node *const *needs, size_t count, int type, Operation *operation, Node **made) {
    Error error = check_needs(graph, needs, count);
    pthread_mutex_lock(&building);
    Node *node = error ? NULL : make_handle(NODE, sizeof *node);
    Node **grown = node ? realloc(graph->nodes, (graph->count + 1) * sizeof *grown) : NULL;
    if (grown) {
        node->graph = graph, node->type = type, node->operation = operation;
        graph->nodes = grown;
        grown[graph->count++] = node;
        for (size_t i = 0; i < count; i++)
            if (!add_need(node, needs[i])) error = OUT_OF_MEMORY;
    } else if (!error) {
        error = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&building);
    if (error) free(operation);
    else *made = node;
    return error;
}

static Operation *copied(const Operation *operation) {
    Operation *made = operation ? malloc(operation->bytes) : NULL;
    if (made) memcpy(made, operation, operation->bytes);
    return made;
}

// The graph's nodes in an order in which each follows what it needs; NULL where there is a cycle.
static Node **ordered(const Graph *graph) {
    Node **order = malloc((graph->count + 1) * sizeof *order);
    u64 mark = ++marks;
    u32 placed = 0;
    for (bool found = true; order && found && placed < graph->count;) {
        found = false;
        for (u32 i = 0; i < graph->count; i++) {
            Node *node = graph->nodes[i];
            bool ready = node->mark != mark;
            for (u32 j = 0; j < node->need_count && ready; j++) ready = node->needs[j]->mark == mark;
            if (ready) order[placed++] = node, node->mark = mark, found = true;
        }
    }
    if (placed == graph->count) return order;
    free(order);
    return NULL;
}

static void end_graph(Graph *graph) {
    for (u32 i = 0; i < graph->count; i++) {
        Node *node = graph->nodes[i];
        if (node->memory && node->type == ALLOCATE_NODE)
            release(node->memory, DEVICE_MEMORY, DEVICE_MEMORY, NULL, "hipGraphDestroy");
        if (node->child) end_graph(node->child);
        free(node->operation), free(node->needs), free(node->pointers);
        end_handle(node, NODE);
    }
    free(graph->nodes);
    end_handle(graph, GRAPH);
}

static Error clone_graph(const Graph *graph, Graph **made) {
    Graph *copy = new_graph();
    if (!copy) return OUT_OF_MEMORY;
    Error error = SUCCESS;
    for (u32 i = 0; i < graph->count && !error; i++) {
        const Node *from = graph->nodes[i];
        Node *to;
        error = add_node(copy, NULL, 0, from->type, copied(from->operation), &to);
        if (error) break;
        to->event = from->event, to->original = graph->nodes[i];
        memcpy(to->raw, from->raw, RAW_BYTES);
        if (from->child) error = clone_graph(from->child, &to->child);
    }
    for (u32 i = 0; i < graph->count && !error; i++)
        for (u32 j = 0; j < graph->nodes[i]->need_count; j++)
            for (u32 k = 0; k < graph->count; k++)
                if (graph->nodes[k] == graph->nodes[i]->needs[j]) add_need(copy->nodes[i], copy->nodes[k]);
    if (error) end_graph(copy);
    else *made = copy;
    return error;
}

API Error hipGraphCreate(Graph **graph, u32 flags) {
    Error error = begin();
    if (!error && (!graph || flags)) error = INVALID_VALUE;
    if (error) return done(error);
    *graph = new_graph();
    return done(*graph ? SUCCESS : OUT_OF_MEMORY);
}

API Error hipGraphDestroy(Graph *graph) {
    if (!is_handle(graph, GRAPH)) return done(INVALID_VALUE);
    end_graph(graph);
    return SUCCESS;
}

API Error hipGraphClone(Graph **made, Graph *graph) {
    if (!made || !is_handle(graph, GRAPH)) return done(INVALID_VALUE);
    return done(clone_graph(graph, made));
}

API Error hipGraphNodeFindInClone(Node **found, Node *original, Graph *graph) {
    if (!found || !is_handle(original, NODE) || !is_handle(graph, GRAPH)) return done(INVALID_VALUE);
    for (u32 i = 0; i < graph->count; i++)
        if (graph->nodes[i]->original == original) return *found = graph->nodes[i], SUCCESS;
    return done(INVALID_VALUE);
}

API Error hipGraphDestroyNode(Node *node) {
    if (!is_handle(node, NODE)) return done(INVALID_VALUE);
    Graph *graph = node->graph;
    pthread_mutex_lock(&building);
    u32 kept = 0;
    for (u32 i = 0; i < graph->count; i++) {
        Node *other = graph->nodes[i];
        u32 needs = 0;
        for (u32 j = 0; j < other->need_count; j++)
            if (other->needs[j] != node) other->needs[needs++] = other->needs[j];
        other->need_count = needs;
        if (other != node) graph->nodes[kept++] = other;
    }
    graph->count = kept;
    free(node->operation), free(node->needs), free(node->pointers);
    end_handle(node, NODE);
    pthread_mutex_unlock(&building);
    return SUCCESS;
}

static Error change_needs(Graph *graph, Node *const *from, Node *const *to, size_t count, bool add) {
    if (!is_handle(graph, GRAPH) || (count && (!from || !to))) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!is_handle(from[i], NODE) || !is_handle(to[i], NODE) || from[i] == to[i]) return INVALID_VALUE;
        if (from[i]->graph != graph || to[i]->graph != graph || depends(to[i], from[i]) == add) return INVALID_VALUE;
        if (add) {
            if (!add_need(to[i], from[i])) return OUT_OF_MEMORY;
            continue;
        }
        u32 kept = 0;
        for (u32 j = 0; j < to[i]->need_count; j++)
            if (to[i]->needs[j] != from[i]) to[i]->needs[kept++] = to[i]->needs[j];
        to[i]->need_count = kept;
    }
    return SUCCESS;
}

API Error hipGraphAddDependencies(Graph *graph, Node *const *from, Node *const *to, size_t count) {
    return done(change_needs(graph, from, to, count, true));
}

API Error hipGraphRemoveDependencies(Graph *graph, Node *const *from, Node *const *to, size_t count) {
    return done(change_needs(graph, from, to, count, false));
}

// -- looking -------------------------------------------------------------------------------------

// Hands out a list as HIP does: its length alone where there is no room, and NULL behind its end.
static Error handed_out(Node *const *found, size_t number, Node **nodes, size_t *count) {
    if (!count) return INVALID_VALUE;
    for (size_t i = 0; nodes && i < *count; i++) nodes[i] = i < number ? found[i] : NULL;
    if (!nodes || *count > number) *count = number;
    return SUCCESS;
}

API Error hipGraphGetNodes(Graph *graph, Node **nodes, size_t *count) {
    if (!is_handle(graph, GRAPH)) return done(INVALID_VALUE);
    return done(handed_out(graph->nodes, graph->count, nodes, count));
}

API Error hipGraphGetRootNodes(Graph *graph, Node **nodes, size_t *count) {
    if (!is_handle(graph, GRAPH)) return done(INVALID_VALUE);
    Node **found = malloc((graph->count + 1) * sizeof *found);
    size_t number = 0;
    for (u32 i = 0; found && i < graph->count; i++)
        if (!graph->nodes[i]->need_count) found[number++] = graph->nodes[i];
    Error error = found ? handed_out(found, number, nodes, count) : OUT_OF_MEMORY;
    free(found);
    return done(error);
}

API Error hipGraphGetEdges(Graph *graph, Node **from, Node **to, size_t *count) {
    if (!is_handle(graph, GRAPH) || !count || !from != !to) return done(INVALID_VALUE);
    size_t number = 0;
    for (u32 i = 0; i < graph->count; i++)
        for (u32 j = 0; j < graph->nodes[i]->need_count; j++, number++)
            if (from && number < *count) from[number] = graph->nodes[i]->needs[j], to[number] = graph->nodes[i];
    if (!from || *count > number) *count = number;
    return SUCCESS;
}

API Error hipGraphNodeGetType(Node *node, int *type) {
    if (!is_handle(node, NODE) || !type) return done(INVALID_VALUE);
    *type = node->type;
    return SUCCESS;
}

API Error hipGraphNodeGetDependencies(Node *node, Node **nodes, size_t *count) {
    if (!is_handle(node, NODE)) return done(INVALID_VALUE);
    return done(handed_out(node->needs, node->need_count, nodes, count));
}

API Error hipGraphNodeGetDependentNodes(Node *node, Node **nodes, size_t *count) {
    if (!is_handle(node, NODE)) return done(INVALID_VALUE);
    Graph *graph = node->graph;
    Node **found = malloc((graph->count + 1) * sizeof *found);
    size_t number = 0;
    for (u32 i = 0; found && i < graph->count; i++)
        if (depends(graph->nodes[i], node)) found[number++] = graph->nodes[i];
    Error error = found ? handed_out(found, number, nodes, count) : OUT_OF_MEMORY;
    free(found);
    return done(error);
}

// -- nodes ---------------------------------------------------------------------------------------

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
    if (!error) *made = &launch->operation;
    return error;
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
    if (!error && raw) memcpy((*node)->raw, raw, bytes);
    return error;
}

// Each kind of node is added, read, changed, and changed where it was made executable.
#define NODE_CALLS(NAME, TYPE, PARAMETERS, MAKE)                                                                          \
    API Error hipGraphAdd##NAME##Node(Node **node, Graph *graph, Node *const *needs, size_t count, const PARAMETERS *p) { \
        Operation *operation = NULL;                                                                                      \
        Error error = begin();                                                                                            \
        if (!error) error = MAKE(p, &operation);                                                                          \
        return done(error ? error : add_given(node, graph, needs, count, TYPE, operation, p, sizeof *p));                 \
    }                                                                                                                     \
    API Error hipGraph##NAME##NodeGetParams(Node *node, PARAMETERS *p) {                                                  \
        if (!is_handle(node, NODE) || node->type != TYPE || !p) return done(INVALID_VALUE);                               \
        memcpy(p, node->raw, sizeof *p);                                                                                  \
        return SUCCESS;                                                                                                   \
    }                                                                                                                     \
    API Error hipGraph##NAME##NodeSetParams(Node *node, const PARAMETERS *p) {                                            \
        Operation *operation = NULL;                                                                                      \
        if (!is_handle(node, NODE) || node->type != TYPE) return done(INVALID_VALUE);                                     \
        Error error = MAKE(p, &operation);                                                                                \
        if (error) return done(error);                                                                                    \
        free(node->operation);                                                                                            \
        node->operation = operation;                                                                                      \
        memcpy(node->raw, p, sizeof *p);                                                                                  \
        return SUCCESS;                                                                                                   \
    }                                                                                                                     \
    API Error hipGraphExec##NAME##NodeSetParams(Exec *exec, Node *node, const PARAMETERS *p) {                            \
        Operation *operation = NULL;                                                                                      \
        Step *step = step_of(exec, node, TYPE);                                                                           \
        if (!step) return done(INVALID_VALUE);                                                                            \
        Error error = MAKE(p, &operation);                                                                                \
        if (error) return done(error);                                                                                    \
        free(step->operation);                                                                                            \
        step->operation = operation;                                                                                      \
        return SUCCESS;                                                                                                   \
    }

static Step *step_of(Exec *exec, Node *node, int type) {
    if (!is_handle(exec, GRAPH_EXEC) || !is_handle(node, NODE) || node->type != type) return NULL;
    for (u32 i = 0; i < exec->count; i++)
        if (exec->steps[i].node == node) return &exec->steps[i];
    return NULL;
}

NODE_CALLS(Kernel, KERNEL_NODE, KernelParameters, kernel_operation)
NODE_CALLS(Memset, FILL_NODE, FillParameters, fill_operation)
NODE_CALLS(Host, HOST_NODE, HostParameters, host_operation)
NODE_CALLS(Memcpy, COPY_NODE, Copy3D, make_copy_3d)

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

// The address at an offset of a variable; NULL where it has not so many bytes.
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
    Error error = is_handle(child, GRAPH) && child != graph ? clone_graph(child, &copy) : INVALID_VALUE;
    if (!error) error = add_given(node, graph, needs, count, CHILD_NODE, NULL, NULL, 0);
    if (!error) (*node)->child = copy;
    return done(error);
}

API Error hipGraphChildGraphNodeGetGraph(Node *node, Graph **graph) {
    if (!is_handle(node, NODE) || node->type != CHILD_NODE || !graph) return done(INVALID_VALUE);
    *graph = node->child;
    return SUCCESS;
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

// hipMemAllocNodeParams: 88 bytes of a pool's properties, two of access, size and result.
typedef struct {
    u8 pool[88];
    void *access;
    size_t accesses, bytes;
    void *pointer;
} AllocateParameters;

// The memory is there as long as the graph, at one address, whatever the node to free it says.
API Error hipGraphAddMemAllocNode(Node **node, Graph *graph, Node *const *needs, size_t count, AllocateParameters *p) {
    Error error = begin();
    if (!error && (!p || !p->bytes)) error = INVALID_VALUE;
    if (!error) error = allocate(DEVICE_MEMORY, current_device, p->bytes, 0, CALLER, &p->pointer);
    if (!error) error = add_given(node, graph, needs, count, ALLOCATE_NODE, NULL, p, sizeof *p);
    if (!error) (*node)->memory = p->pointer;
    return done(error);
}

API Error hipGraphMemAllocNodeGetParams(Node *node, AllocateParameters *p) {
    if (!is_handle(node, NODE) || node->type != ALLOCATE_NODE || !p) return done(INVALID_VALUE);
    memcpy(p, node->raw, sizeof *p);
    return SUCCESS;
}

API Error hipGraphAddMemFreeNode(Node **node, Graph *graph, Node *const *needs, size_t count, void *pointer) {
    Error error = begin();
    if (!error && !pointer) error = INVALID_VALUE;
    if (!error) error = add_given(node, graph, needs, count, FREE_NODE, NULL, NULL, 0);
    if (!error) (*node)->memory = pointer;
    return done(error);
}

API Error hipGraphMemFreeNodeGetParams(Node *node, void *pointer) {
    if (!is_handle(node, NODE) || node->type != FREE_NODE || !pointer) return done(INVALID_VALUE);
    *(void **)pointer = node->memory;
    return SUCCESS;
}

API Error hipDeviceGraphMemTrim(int device) { return done(device >= 0 && device < (int)state.devices ? SUCCESS : INVALID_DEVICE); }

// -- executing -----------------------------------------------------------------------------------

static Error add_steps(Exec *exec, Graph *graph) {
    Node **order = ordered(graph);
    if (!order) return INVALID_VALUE;
    Error error = SUCCESS;
    for (u32 i = 0; i < graph->count && !error; i++) {
        Node *node = order[i];
        if (node->type == CHILD_NODE) {
            error = add_steps(exec, node->child);
            continue;
        }
        Step *grown = realloc(exec->steps, (exec->count + 1) * sizeof *grown);
        if (!grown) error = OUT_OF_MEMORY;
        else {
            exec->steps = grown;
            grown[exec->count++] = (Step){node, copied(node->operation), node->event, true};
        }
    }
    free(order);
    return error;
}

static void clear_steps(Exec *exec) {
    for (u32 i = 0; i < exec->count; i++) free(exec->steps[i].operation);
    free(exec->steps);
    exec->steps = NULL, exec->count = 0;
}

static Error instantiate(Exec **made, Graph *graph, u64 flags) {
    Error error = begin();
    if (!error && (!made || !is_handle(graph, GRAPH))) error = INVALID_VALUE;
    if (error) return done(error);
    Exec *exec = make_handle(GRAPH_EXEC, sizeof *exec);
    if (!exec) return done(OUT_OF_MEMORY);
    exec->flags = flags;
    pthread_mutex_lock(&building);
    error = add_steps(exec, graph);
    pthread_mutex_unlock(&building);
    if (error) clear_steps(exec), end_handle(exec, GRAPH_EXEC);
    else *made = exec;
    return done(error);
}

API Error hipGraphInstantiate(Exec **made, Graph *graph, Node **wrong, char *log, size_t bytes) {
    if (wrong) *wrong = NULL;
    if (log && bytes) *log = 0;
    return instantiate(made, graph, 0);
}

API Error hipGraphInstantiateWithFlags(Exec **made, Graph *graph, u64 flags) {
    return flags & ~15ull ? done(INVALID_VALUE) : instantiate(made, graph, flags);
}

typedef struct {
    Node *wrong;
    u64 flags;
    int result;
    void *stream;
} InstantiateParameters;

API Error hipGraphInstantiateWithParams(Exec **made, Graph *graph, InstantiateParameters *p) {
    if (!p) return done(INVALID_VALUE);
    Error error = instantiate(made, graph, p->flags);
    p->wrong = NULL, p->result = error ? 1 : 0;
    return error;
}

API Error hipGraphExecDestroy(Exec *exec) {
    if (!is_handle(exec, GRAPH_EXEC)) return done(INVALID_VALUE);
    clear_steps(exec);
    end_handle(exec, GRAPH_EXEC);
    return SUCCESS;
}

API Error hipGraphExecGetFlags(Exec *exec, u64 *flags) {
    if (!is_handle(exec, GRAPH_EXEC) || !flags) return done(INVALID_VALUE);
    *flags = exec->flags;
    return SUCCESS;
}

API Error hipGraphUpload(Exec *exec, void *given) {
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(exec, GRAPH_EXEC)) error = INVALID_VALUE;
    return done(error ? error : find_stream(given, &stream));
}

API Error hipGraphLaunch(Exec *exec, void *given) {
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(exec, GRAPH_EXEC)) error = INVALID_VALUE;
    if (!error) error = find_stream(given, &stream);
    if (!error) error = device_error(stream->device);
    for (u32 i = 0; !error && i < exec->count; i++) {
        Step *step = &exec->steps[i];
        if (!step->enabled) continue;
        if (step->operation) {
            Operation *operation = copied(step->operation);
            error = operation ? submit(stream, operation) : OUT_OF_MEMORY;
        } else if (step->node && step->event) {
            bool waits = is_handle(step->node, NODE) && step->node->type == WAIT_NODE;
            error = waits ? wait_event(stream, step->event) : record_event(stream, step->event);
        }
    }
    return done(error);
}

API Error hipGraphNodeSetEnabled(Exec *exec, Node *node, u32 enabled) {
    Step *step = is_handle(node, NODE) ? step_of(exec, node, node->type) : NULL;
    if (!step || node->type > FILL_NODE) return done(INVALID_VALUE);
    step->enabled = enabled;
    return SUCCESS;
}

API Error hipGraphNodeGetEnabled(Exec *exec, Node *node, u32 *enabled) {
    Step *step = is_handle(node, NODE) ? step_of(exec, node, node->type) : NULL;
    if (!step || !enabled) return done(INVALID_VALUE);
    *enabled = step->enabled;
    return SUCCESS;
}

// Takes the operations of a graph of the same shape.
API Error hipGraphExecUpdate(Exec *exec, Graph *graph, Node **wrong, int *result) {
    enum { UPDATED, FAILED, TOPOLOGY, TYPE };
    if (!is_handle(exec, GRAPH_EXEC) || !is_handle(graph, GRAPH) || !wrong || !result) return done(INVALID_VALUE);
    *wrong = NULL, *result = UPDATED;
    Exec fresh = {0};
    pthread_mutex_lock(&building);
    Error error = add_steps(&fresh, graph);
    pthread_mutex_unlock(&building);
    if (error || fresh.count != exec->count) *result = error ? FAILED : TOPOLOGY;
    for (u32 i = 0; *result == UPDATED && i < fresh.count; i++) {
        Step *old = &exec->steps[i], *new = &fresh.steps[i];
        bool same = old->operation ? new->operation && old->operation->run == new->operation->run : !new->operation;
        if (!same) *result = TYPE, *wrong = new->node;
    }
    if (*result == UPDATED) {
        Step *steps = exec->steps;
        for (u32 i = 0; i < fresh.count; i++) fresh.steps[i].enabled = steps[i].enabled, fresh.steps[i].node = steps[i].node;
        exec->steps = fresh.steps, fresh.steps = steps;
    }
    clear_steps(&fresh);
    return done(*result == UPDATED ? SUCCESS : UPDATE_FAILURE);
}

API Error hipGraphExecChildGraphNodeSetParams(Exec *exec, Node *node, Graph *child) {
    if (!is_handle(exec, GRAPH_EXEC) || !is_handle(node, NODE) || node->type != CHILD_NODE || !is_handle(child, GRAPH))
        return done(INVALID_VALUE);
    if (child->count != node->child->count) return done(UPDATE_FAILURE);
    for (u32 i = 0; i < child->count; i++) {
        Step *step = step_of(exec, node->child->nodes[i], child->nodes[i]->type);
        if (!step) return done(UPDATE_FAILURE);
        free(step->operation);
        step->operation = copied(child->nodes[i]->operation);
    }
    return SUCCESS;
}
