// Executable graphs: lists of operations in an order that the dependencies allow. A launch submits the whole list.
#include "graph.h"

Step *step_of(Exec *exec, Node *node, int type) {
    if (!is_handle(exec, GRAPH_EXEC) || !is_handle(node, NODE) || node->type != type) return NULL;
    for (u32 i = 0; i < exec->count; i++)
        if (exec->steps[i].node == node) return &exec->steps[i];
    return NULL;
}

typedef struct {
    u32 *steps, count;
} Needs;

static bool add_need(Needs *needs, u32 first, u32 end) {
    u32 *grown = realloc(needs->steps, (needs->count + end - first) * sizeof *grown);
    if (!grown) return false;
    needs->steps = grown;
    while (first < end) grown[needs->count++] = first++;
    return true;
}

// Finds the steps that node `at` of `order` needs: those of its own needs, or `outer` of a child graph. begins: the first step of
// each node before it, and the step after all of these.
static bool find_needs(Node *const *order, u32 at, const u32 *begins, Needs outer, Needs *found) {
    *found = (Needs){0};
    const Node *node = order[at];
    bool fine = true;
    for (u32 i = 0; fine && i < node->need_count; i++)
        for (u32 before = at; before-- > 0;)
            if (order[before] == node->needs[i]) {
                fine = add_need(found, begins[before], begins[before + 1]);
                break;
            }
    for (u32 i = 0; fine && !node->need_count && i < outer.count; i++)
        fine = add_need(found, outer.steps[i], outer.steps[i] + 1);
    return fine;
}

// Places a step in the branch of the first step that it needs and that no other step continues, or in a new branch.
static void place_step(Exec *exec, u32 number) {
    Step *step = &exec->steps[number];
    step->next = UINT32_MAX;
    for (u32 i = 0; i < step->need_count; i++) {
        Step *needed = &exec->steps[step->needs[i]];
        if (needed->next != UINT32_MAX) continue;
        needed->next = number, step->branch = needed->branch, step->ticket = needed->ticket + 1;
        return;
    }
    step->branch = exec->branches++, step->ticket = 1;
}

static Error add_step(Exec *exec, Node *node, Needs needs) {
    Step *grown = realloc(exec->steps, (exec->count + 1) * sizeof *grown);
    if (!grown) return OUT_OF_MEMORY;
    exec->steps = grown;
    grown[exec->count] = (Step){
        .node = node, .operation = copied(node->operation), .event = node->event, .enabled = true, .needs = needs.steps,
        .need_count = needs.count};
    apply_attribute(node, grown[exec->count].operation);
    hold_memory(node->operation);
    place_step(exec, exec->count++);
    return SUCCESS;
}

static Error add_steps(Exec *exec, Graph *graph, Needs outer) {
    Node **order = ordered(graph);
    u32 *begins = calloc(graph->count + 1, sizeof *begins);
    Error error = !order ? INVALID_VALUE : begins ? SUCCESS : OUT_OF_MEMORY;
    for (u32 i = 0; i < graph->count && !error; i++) {
        Node *node = order[i];
        Needs needs;
        begins[i] = exec->count;
        if (!find_needs(order, i, begins, outer, &needs)) error = OUT_OF_MEMORY;
        else if (node->type == CHILD_NODE && node->child->count) error = add_steps(exec, node->child, needs);
        else if (!(error = add_step(exec, node, needs))) needs.steps = NULL;
        free(needs.steps);
        begins[i + 1] = exec->count;
    }
    free(order), free(begins);
    return error;
}

static void clear_steps(Exec *exec) {
    for (u32 i = 0; i < exec->count; i++)
        drop_memory(exec->steps[i].operation), free(exec->steps[i].operation), free(exec->steps[i].needs);
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
    error = add_steps(exec, graph, (Needs){0});
    pthread_mutex_unlock(&building);
    if (!error) error = copy_references(graph->references, &exec->references);
    if (error) clear_steps(exec), end_references(&exec->references), end_handle(exec, GRAPH_EXEC);
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
    end_references(&exec->references);
    end_handle(exec, GRAPH_EXEC);
    return done(SUCCESS);
}

API Error hipGraphExecGetFlags(Exec *exec, u64 *flags) {
    if (!is_handle(exec, GRAPH_EXEC) || !flags) return done(INVALID_VALUE);
    *flags = exec->flags;
    return done(SUCCESS);
}

API Error hipGraphUpload(Exec *exec, void *given) {
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(exec, GRAPH_EXEC)) error = INVALID_VALUE;
    return done(error ? error : find_stream(given, &stream));
}

// Logs what a step follows, beside the step before it in its branch.
static void log_needs(const Exec *exec, u32 number, u64 branches, const Stream *stream) {
    const Step *step = &exec->steps[number];
    if (!branches) return;
    if (!step->need_count) order_follows_stream(branches + step->branch, step->ticket - 1, stream);
    for (u32 i = 0; i < step->need_count; i++) {
        const Step *needed = &exec->steps[step->needs[i]];
        if (needed->branch != step->branch)
            order_follows(branches + step->branch, step->ticket - 1, branches + needed->branch, needed->ticket);
    }
}

// Logs that the stream follows the steps before a number.
static void log_ends(const Exec *exec, u32 end, u64 branches, const Stream *stream) {
    for (u32 i = 0; branches && i < end; i++)
        if (exec->steps[i].next >= end) order_stream_follows(stream, branches + exec->steps[i].branch, exec->steps[i].ticket);
}

API Error hipGraphLaunch(Exec *exec, void *given) {
    Stream *stream;
    Error error = begin();
    if (!error && !is_handle(exec, GRAPH_EXEC)) error = INVALID_VALUE;
    if (!error) error = find_stream(given, &stream);
    if (!error) error = device_error(stream->device);
    if (error) return done(error);
    u64 branches = order_graph(stream, exec->branches);
    for (u32 i = 0; !error && i < exec->count; i++) {
        Step *step = &exec->steps[i];
        u64 branch = branches ? branches + step->branch : 0;
        log_needs(exec, i, branches, stream);
        if (!step->enabled) continue;
        if (step->operation) {
            Operation *operation = copied(step->operation);
            if (operation) operation->branch = branch, operation->branch_ticket = step->ticket;
            note_launch(operation);
            error = operation ? submit(stream, operation) : OUT_OF_MEMORY;
        } else if (step->node && step->event) {
            bool waits = is_handle(step->node, NODE) && step->node->type == WAIT_NODE;
            log_ends(exec, i, branches, stream);
            error = waits ? wait_event(stream, step->event) : record_event(stream, step->event);
            order_follows_stream(branch, step->ticket - 1, stream);
        }
    }
    log_ends(exec, exec->count, branches, stream);
    return done(error);
}

API Error hipGraphNodeSetEnabled(Exec *exec, Node *node, u32 enabled) {
    Step *step = is_handle(node, NODE) ? step_of(exec, node, node->type) : NULL;
    if (!step || node->type > FILL_NODE) return done(INVALID_VALUE);
    step->enabled = enabled;
    return done(SUCCESS);
}

API Error hipGraphNodeGetEnabled(Exec *exec, Node *node, u32 *enabled) {
    Step *step = is_handle(node, NODE) ? step_of(exec, node, node->type) : NULL;
    if (!step || node->type > FILL_NODE || !enabled) return done(INVALID_VALUE);
    *enabled = step->enabled;
    return done(SUCCESS);
}

// Takes over the operations of a graph of the same shape.
API Error hipGraphExecUpdate(Exec *exec, Graph *graph, Node **wrong, int *result) {
    enum { UPDATED, FAILED, TOPOLOGY, TYPE };
    if (!is_handle(exec, GRAPH_EXEC) || !is_handle(graph, GRAPH) || !wrong || !result) return done(INVALID_VALUE);
    *wrong = NULL, *result = UPDATED;
    Exec fresh = {0};
    pthread_mutex_lock(&building);
    Error error = add_steps(&fresh, graph, (Needs){0});
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
        exec->steps = fresh.steps, fresh.steps = steps, exec->branches = fresh.branches;
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
    return done(SUCCESS);
}
