// Memory of a graph: nodes that allocate and free, added, or captured from hipMallocAsync and hipFreeAsync.
//
// A node's memory gets its address when the node is made, and keeps it for all launches. If the graph frees the memory, the library
// releases it once no graph or executable graph has the node any more. Otherwise the program must free it.
#include "graph.h"

typedef struct {  // operation of a node that allocates or frees
    Operation operation;
    void *pointer;
    Node *owner;  // node that allocates it; NULL: another graph frees it
    void *site;
} Held;

static Error run_take(Operation *operation) { return revive(((Held *)operation)->pointer, true), SUCCESS; }

static Error run_give(Operation *operation) {
    Held *it = (Held *)operation;
    return it->owner ? SUCCESS : release(it->pointer, DEVICE_MEMORY, DEVICE_MEMORY, it->site, "a node of a graph");
}

int memory_node_type(const Operation *operation) {
    return operation->run == run_take ? ALLOCATE_NODE : operation->run == run_give ? FREE_NODE : EMPTY_NODE;
}

void hold_memory(const Operation *operation) {
    if (operation && operation->run == run_take) ((Held *)operation)->owner->holds++;
}

void drop_memory(const Operation *operation) {
    Node *owner = operation && operation->run == run_take ? ((Held *)operation)->owner : NULL;
    Allocation found;
    if (!owner || --owner->holds || (owner->launched && !owner->freed_by_graph) || !look_up(owner->memory, &found)) return;
    release(owner->memory, DEVICE_MEMORY, DEVICE_MEMORY, NULL, "hipGraphDestroy");
}

void note_launch(const Operation *operation) {
    if (!operation || operation->run != run_take) return;
    ((Held *)operation)->owner->launched = true;
    revive(((Held *)operation)->pointer, false);  // for the following calls; queued work may still free it once
}

static Operation *memory_operation(Error (*run)(Operation *), void *pointer, Node *owner, void *site) {
    Held *made = make_operation(sizeof *made, run);
    if (made) made->pointer = pointer, made->owner = owner, made->site = site;
    return made ? &made->operation : NULL;
}

static void own(Node *node, void *pointer) {
    ((Held *)node->operation)->owner = node;
    node->memory = pointer, node->holds = 1;
}

static Node *owner_in(const Graph *graph, const void *pointer) {
    for (u32 i = 0; i < graph->count; i++)
        if (graph->nodes[i]->type == ALLOCATE_NODE && graph->nodes[i]->memory == pointer) return graph->nodes[i];
    return NULL;
}

static Operation *freeing(const Graph *graph, void *pointer, void *site) {
    Node *owner = owner_in(graph, pointer);
    if (owner) owner->freed_by_graph = true;
    return memory_operation(run_give, pointer, owner, site);
}

Error capture_allocation(Stream *stream, void *pointer) {
    Operation *operation = memory_operation(run_take, pointer, NULL, NULL);
    Error error = operation ? capture(stream, operation) : OUT_OF_MEMORY;
    if (!error) own(stream->last[0], pointer);
    return error;
}

Error capture_free(Stream *stream, void *pointer, void *site) {
    Operation *operation = freeing(stream->capture, pointer, site);
    Error error = operation ? capture(stream, operation) : OUT_OF_MEMORY;
    if (!error) stream->last[0]->memory = pointer;
    return error;
}

// -- nodes that the program adds -----------------------------------------------------------------

static bool fits(const AllocateParameters *p) {
    enum { PINNED = 1, ON_DEVICE = 1 };
    return p && p->bytes && p->type == PINNED && p->location_type == ON_DEVICE && !check_device(p->device);
}

API Error hipGraphAddMemAllocNode(Node **node, Graph *graph, Node *const *needs, size_t count, AllocateParameters *p) {
    Error error = begin();
    if (!error && (!node || !fits(p))) error = INVALID_VALUE;
    if (!error) error = check_needs(graph, needs, count);
    if (!error) error = allocate(DEVICE_MEMORY, p->device, p->bytes, 0, CALLER, &p->pointer);
    if (error) return done(error);
    Operation *operation = memory_operation(run_take, p->pointer, NULL, CALLER);
    error = operation ? add_node(graph, needs, count, ALLOCATE_NODE, operation, node) : OUT_OF_MEMORY;
    if (error) return release(p->pointer, DEVICE_MEMORY, DEVICE_MEMORY, CALLER, "hipGraphAddMemAllocNode"), done(error);
    own(*node, p->pointer);
    count_graph_memory(p->pointer, p->device);
    memcpy((*node)->raw, p, sizeof *p), (*node)->given = true;
    return done(SUCCESS);
}

API Error hipGraphMemAllocNodeGetParams(Node *node, AllocateParameters *p) {
    if (!is_handle(node, NODE) || node->type != ALLOCATE_NODE || !p) return done(INVALID_VALUE);
    Allocation found = {0};
    look_up(node->memory, &found);
    if (node->given) memcpy(p, node->raw, sizeof *p);
    else *p = (AllocateParameters){.type = 1, .location_type = 1, .device = found.device, .bytes = found.bytes,
                                   .pointer = node->memory};
    return done(SUCCESS);
}

API Error hipGraphAddMemFreeNode(Node **node, Graph *graph, Node *const *needs, size_t count, void *pointer) {
    Error error = begin();
    Allocation found;
    if (!error && (!node || !pointer)) error = INVALID_VALUE;
    if (!error) error = check_needs(graph, needs, count);
    bool known = !error && look_up(pointer, &found) && found.memory == DEVICE_MEMORY && found.address == (u64)pointer;
    if (!error && !known) error = INVALID_VALUE;
    if (error) return done(error);
    Operation *operation = freeing(graph, pointer, CALLER);
    error = operation ? add_node(graph, needs, count, FREE_NODE, operation, node) : OUT_OF_MEMORY;
    if (!error) (*node)->memory = pointer;
    return done(error);
}

API Error hipGraphMemFreeNodeGetParams(Node *node, void *pointer) {
    if (!is_handle(node, NODE) || node->type != FREE_NODE || !pointer) return done(INVALID_VALUE);
    *(void **)pointer = node->memory;
    return done(SUCCESS);
}
