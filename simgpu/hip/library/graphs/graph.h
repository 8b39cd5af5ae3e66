// Graphs and their nodes, shared by the files that build them and capture.c.
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "internal.h"

// hipGraphNodeType
enum {
    KERNEL_NODE,
    COPY_NODE,
    FILL_NODE,
    HOST_NODE,
    CHILD_NODE,
    EMPTY_NODE,
    WAIT_NODE,
    RECORD_NODE,
    ALLOCATE_NODE = 10,
    FREE_NODE
};
enum { RAW_BYTES = 192 };

typedef union {  // hipKernelNodeAttrValue
    struct {
        void *base;
        int hit;
        float hit_ratio;
        int miss;
        size_t bytes;
    } window;
    int number;  // value of all other attributes
} Attribute;

typedef struct Node {
    Handle handle;
    struct Graph *graph;
    int type;
    Operation *operation;  // NULL where the type has none
    struct Graph *child;
    Event *event;
    struct Node **needs;
    u32 need_count;
    struct Node *original;  // node that this one was cloned from
    u64 mark;
    u8 raw[RAW_BYTES];  // parameters as the program gave them
    bool given;
    void **pointers;  // pointers to a kernel's arguments
    void *memory;  // memory that it allocates or frees
    u32 holds;  // node that allocates: number of graphs and executable graphs that hold it
    bool launched, freed_by_graph;  // node that allocates: state of its memory
    bool joined;  // captured, and some stream waits for it
    int attribute;  // kernel node: attribute that was set; 0: none
    Attribute value;
} Node;

typedef struct Reference Reference;  // reference to a user object

typedef struct Graph {
    Handle handle;
    Node **nodes;
    u32 count;
    Reference *references;
} Graph;

typedef struct {  // hipMemAllocNodeParams: 88 bytes of a pool's properties, two of access, size and result
    int type, handles, location_type, device;
    u8 rest[72];
    void *access;
    size_t accesses, bytes;
    void *pointer;
} AllocateParameters;

typedef struct {
    Node *node;
    Operation *operation;
    Event *event;
    bool enabled;
    u32 *needs, need_count;  // numbers of steps that must end before it begins
    u32 branch, ticket;  // its place in order.c's sense: it follows the ticket before, which is of a step that it needs
    u32 next;  // number of the step of the next ticket; UINT32_MAX: none
} Step;

typedef struct {  // executable graph
    Handle handle;
    Step *steps;
    u32 count, branches;
    u64 flags;
    Reference *references;
} Exec;

extern pthread_mutex_t building;  // guards all graphs
extern u64 marks;  // last mark in use: each walk over nodes takes a new one

Graph *new_graph(void);
Error check_needs(Graph *graph, Node *const *needs, size_t count);
Error add_node(Graph *graph, Node *const *needs, size_t count, int type, Operation *operation, Node **made);  // owns the operation
Operation *copied(const Operation *operation);
Node **ordered(const Graph *graph);  // each node after those that it needs; NULL if there is a cycle
void end_graph(Graph *graph);
Error clone_graph(const Graph *graph, Graph **made);
void apply_attribute(const Node *node, Operation *launch);  // copies a kernel node's attribute into its launch
Step *step_of(Exec *exec, Node *node, int type);  // NULL if it has none

Error hipGraphAddMemAllocNode(Node **node, Graph *graph, Node *const *needs, size_t count, AllocateParameters *p);
Error hipGraphAddMemFreeNode(Node **node, Graph *graph, Node *const *needs, size_t count, void *pointer);

// Memory nodes, by their operations. These functions ignore other operations.
int memory_node_type(const Operation *operation);
void hold_memory(const Operation *operation);
void drop_memory(const Operation *operation);
void note_launch(const Operation *operation);

Error copy_references(Reference *from, Reference **to);
void end_references(Reference **list);

#endif
