// User objects that graphs keep: each counts its references, and dies with the last one.
#include "graph.h"

typedef struct UserObject {
    Handle handle;
    void *data;
    void (*destroy)(void *);
    u64 count;
} UserObject;

struct Reference {
    UserObject *object;
    u64 count;
    struct Reference *next;
};

// By HIP's rules, references of a destroyed object may be retained and released, without effect.
static Error retain(UserObject *object, u64 count) {
    if (was_handle(object, USER_OBJECT) && count && count <= INT32_MAX) return SUCCESS;
    if (!is_handle(object, USER_OBJECT) || !count || count > INT32_MAX) return INVALID_VALUE;
    __atomic_add_fetch(&object->count, count, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

// A program may release more references than there are.
static Error let_go(UserObject *object, u64 count) {
    if (was_handle(object, USER_OBJECT)) return SUCCESS;
    if (!is_handle(object, USER_OBJECT) || !count || count > INT32_MAX) return INVALID_VALUE;
    u64 before = __atomic_fetch_sub(&object->count, count, __ATOMIC_SEQ_CST);
    if (before > count) return SUCCESS;
    end_handle(object, USER_OBJECT);
    object->destroy(object->data);
    return SUCCESS;
}

API Error hipUserObjectCreate(UserObject **result, void *data, void (*destroy)(void *), u32 count, u32 flags) {
    const u32 NOT_SYNCHRONIZED = 1;
    if (!result || !destroy || !count || count > INT32_MAX || flags != NOT_SYNCHRONIZED) return done(INVALID_VALUE);
    *result = make_handle(USER_OBJECT, sizeof **result);
    if (!*result) return done(OUT_OF_MEMORY);
    (*result)->data = data, (*result)->destroy = destroy, (*result)->count = count;
    return done(SUCCESS);
}

API Error hipUserObjectRetain(UserObject *object, u32 count) { return done(retain(object, count)); }
API Error hipUserObjectRelease(UserObject *object, u32 count) { return done(let_go(object, count)); }

static Error keep(Reference **list, UserObject *object, u64 count) {
    Reference *made = malloc(sizeof *made);
    if (!made) return OUT_OF_MEMORY;
    *made = (Reference){object, count, *list};
    *list = made;
    return SUCCESS;
}

API Error hipGraphRetainUserObject(Graph *graph, UserObject *object, u32 count, u32 flags) {
    enum { MOVE = 1 };  // the graph takes over the caller's references
    bool gone = was_handle(object, USER_OBJECT);
    if (!is_handle(graph, GRAPH) || (!gone && !is_handle(object, USER_OBJECT)) || !count || count > INT32_MAX || flags & ~(u32)MOVE)
        return done(INVALID_VALUE);
    if (gone) return done(SUCCESS);
    Error error = keep(&graph->references, object, count);
    return done(error || flags == MOVE ? error : retain(object, count));
}

API Error hipGraphReleaseUserObject(Graph *graph, UserObject *object, u32 count) {
    bool known = is_handle(object, USER_OBJECT) || was_handle(object, USER_OBJECT);
    if (!is_handle(graph, GRAPH) || !known || !count || count > INT32_MAX) return done(INVALID_VALUE);
    for (Reference *at = graph->references; at; at = at->next)
        if (at->object == object && at->count) {
            u64 released = count < at->count ? count : at->count;
            return at->count -= released, done(let_go(object, released));
        }
    return done(SUCCESS);  // by HIP's rules, even if the graph does not keep the object
}

Error copy_references(Reference *from, Reference **to) {
    Error error = SUCCESS;
    for (; from && !error; from = from->next) {
        if (!from->count || !is_handle(from->object, USER_OBJECT)) continue;
        error = keep(to, from->object, from->count);
        if (!error) error = retain(from->object, from->count);
    }
    return error;
}

void end_references(Reference **list) {
    while (*list) {
        Reference *first = *list;
        *list = first->next;
        if (first->count) let_go(first->object, first->count);
        free(first);
    }
}
