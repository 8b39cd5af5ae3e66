// Graphs as text for Graphviz: a box for each node, an arrow for each dependency, a cluster for each child graph.
#include "graph.h"

#include <stdio.h>

static const char *type_name(int type) {
    static const char *const NAMES[] = {"kernel", "memcpy", "memset", "host", "graph", "empty", "event wait", "event record"};
    return type == ALLOCATE_NODE ? "allocate" : type == FREE_NODE ? "free" : type <= RECORD_NODE ? NAMES[type] : "node";
}

static void print_graph(FILE *file, const Graph *graph, const char *kind) {
    fprintf(file, "%s%p\" {\n", kind, (const void *)graph);
    for (u32 i = 0; i < graph->count; i++) {
        const Node *node = graph->nodes[i];
        const char *name = node->type == KERNEL_NODE ? ((const Launch *)node->operation)->function->name : "";
        fprintf(file, "  \"%p\" [shape=box, label=\"%u: %s %s\"]\n", (const void *)node, i, type_name(node->type), name);
        if (node->child) print_graph(file, node->child, "subgraph \"cluster");
    }
    for (u32 i = 0; i < graph->count; i++)
        for (u32 j = 0; j < graph->nodes[i]->need_count; j++)
            fprintf(file, "  \"%p\" -> \"%p\"\n", (void *)graph->nodes[i]->needs[j], (void *)graph->nodes[i]);
    fputs("}\n", file);
}

API Error hipGraphDebugDotPrint(Graph *graph, const char *path, u32 flags) {
    (void)flags;  // amount of detail: always the same here
    if (!is_handle(graph, GRAPH) || !path) return done(INVALID_VALUE);
    FILE *file = fopen(path, "w");
    if (!file) return done(OPERATING_SYSTEM);
    pthread_mutex_lock(&building);
    print_graph(file, graph, "digraph \"");
    pthread_mutex_unlock(&building);
    return done(fclose(file) ? OPERATING_SYSTEM : SUCCESS);
}
