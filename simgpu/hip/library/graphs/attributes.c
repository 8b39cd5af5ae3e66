// Attributes of kernel nodes. A node has one at a time. Only one of them changes the launch: whether it is cooperative.
#include "graph.h"

enum { NO_ATTRIBUTE, ACCESS_POLICY, COOPERATIVE, PRIORITY = 8 };  // hipLaunchAttributeID
enum { PERSISTING = 2 };  // hipAccessProperty
enum { HIGHEST = -1, LOWEST = 1 };  // priorities of streams

static bool is_kernel(Node *node) { return is_handle(node, NODE) && node->type == KERNEL_NODE; }

static bool is_attribute(int attribute) {
    return attribute == ACCESS_POLICY || attribute == COOPERATIVE || attribute == PRIORITY;
}

// No device reserves a part of its cache (hipDeviceAttributeAccessPolicyMaxWindowSize is 0), so a window must have 0 bytes.
static bool is_valid(int attribute, const Attribute *value) {
    if (attribute == PRIORITY) return value->number >= HIGHEST && value->number <= LOWEST;
    if (attribute != ACCESS_POLICY) return true;
    return value->window.hit_ratio >= 0 && value->window.hit_ratio <= 1 && value->window.miss != PERSISTING && !value->window.bytes;
}

void apply_attribute(const Node *node, Operation *launch) {
    if (launch && node->attribute == COOPERATIVE) ((Launch *)launch)->cooperative = node->value.number != 0;
}

API Error hipGraphKernelNodeSetAttribute(Node *node, int attribute, const Attribute *value) {
    if (!is_kernel(node) || !value || !is_attribute(attribute)) return done(INVALID_VALUE);
    Attribute given = {0};
    if (attribute == ACCESS_POLICY) given.window = value->window;
    else given.number = value->number;
    if (!is_valid(attribute, &given)) return done(INVALID_VALUE);
    node->attribute = attribute, node->value = given;
    return done(SUCCESS);
}

API Error hipGraphKernelNodeGetAttribute(Node *node, int attribute, Attribute *value) {
    if (!is_kernel(node) || !value || !is_attribute(attribute)) return done(INVALID_VALUE);
    if (node->attribute && node->attribute != attribute) return done(INVALID_VALUE);
    if (attribute == ACCESS_POLICY) value->window = node->value.window;
    else value->number = node->value.number;
    return done(SUCCESS);
}

API Error hipGraphKernelNodeCopyAttributes(Node *from, Node *to) {
    if (!is_kernel(from) || !is_kernel(to)) return done(INVALID_VALUE);
    if (to->attribute && to->attribute != from->attribute) return done(INVALID_CONTEXT);
    to->attribute = from->attribute, to->value = from->value;
    return done(SUCCESS);
}
