// Graphs: work that is captured from streams or added node by node, and then launched as a whole.
//
// A node holds an operation as a stream would queue it. An executable graph is a list of copies of these operations, in an order
// that the dependencies allow. A launch queues the list in one stream.
#include "graph.h"

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

// Adds a node to the graph; the node owns the operation.
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

Operation *copied(const Operation *operation) {
    Operation *made = operation ? malloc(operation->bytes) : NULL;
    if (made) memcpy(made, operation, operation->bytes);
    return made;
}

// Returns the graph's nodes, each after those that it needs; NULL if there is a cycle.
Node **ordered(const Graph *graph) {
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

// Empties the node but keeps its handle: a stream that captures may still name it.
static void end_node(Node *node) {
    free(node->operation), free(node->needs), free(node->pointers);
    node->operation = NULL, node->needs = NULL, node->pointers = NULL, node->need_count = 0;
    end_handle(node, NODE);
}

void end_graph(Graph *graph) {
    for (u32 i = 0; i < graph->count; i++) {
        Node *node = graph->nodes[i];
        drop_memory(node->operation);
        if (node->child) end_graph(node->child);
        end_node(node);
    }
    free(graph->nodes);
    graph->nodes = NULL, graph->count = 0;
    end_references(&graph->references);
    end_handle(graph, GRAPH);
}

Error clone_graph(const Graph *graph, Graph **made) {
    Graph *copy = new_graph();
    if (!copy) return OUT_OF_MEMORY;
    Error error = SUCCESS;
    for (u32 i = 0; i < graph->count && !error; i++) {
        const Node *from = graph->nodes[i];
        Node *to;
        error = add_node(copy, NULL, 0, from->type, copied(from->operation), &to);
        if (error) break;
        to->event = from->event, to->original = graph->nodes[i], to->memory = from->memory;
        to->attribute = from->attribute, to->value = from->value;
        hold_memory(to->operation);
        memcpy(to->raw, from->raw, RAW_BYTES), to->given = from->given;
        if (from->child) error = clone_graph(from->child, &to->child);
    }
    for (u32 i = 0; i < graph->count && !error; i++)
        for (u32 j = 0; j < graph->nodes[i]->need_count; j++)
            for (u32 k = 0; k < graph->count; k++)
                if (graph->nodes[k] == graph->nodes[i]->needs[j]) add_need(copy->nodes[i], copy->nodes[k]);
    if (!error) error = copy_references(graph->references, &copy->references);
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
    return done(SUCCESS);
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
    drop_memory(node->operation);
    end_node(node);
    pthread_mutex_unlock(&building);
    return done(SUCCESS);
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

// Copies a list into the program's array by HIP's rules: without an array it returns only the length, and NULL fills the rest.
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
    return done(SUCCESS);
}

API Error hipGraphNodeGetType(Node *node, int *type) {
    if (!is_handle(node, NODE) || !type) return done(INVALID_VALUE);
    *type = node->type;
    return done(SUCCESS);
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
