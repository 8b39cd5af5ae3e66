// Copies in two and three dimensions that a structure describes.
#include "transfer.h"

Error transfer_3d(const Copy3D *p, Transfer *wanted) {
    if (!p) return INVALID_VALUE;
    if (p->from_array || p->to_array) return no_images("hipMemcpy3D of an array");
    size_t from_slice = p->from.pitch * p->from.height, to_slice = p->to.pitch * p->to.height;
    if (!p->from.pointer || !p->to.pointer) return INVALID_VALUE;
    wanted->width = p->width, wanted->height = p->height, wanted->depth = p->depth;
    wanted->from_pitch = p->from.pitch, wanted->to_pitch = p->to.pitch;
    wanted->from_slice = from_slice, wanted->to_slice = to_slice;
    wanted->from = (const u8 *)p->from.pointer + p->from_z * from_slice + p->from_y * p->from.pitch + p->from_x;
    wanted->to = (u8 *)p->to.pointer + p->to_z * to_slice + p->to_y * p->to.pitch + p->to_x;
    return SUCCESS;
}

static Error copy_3d(const Copy3D *p, How how, void *site, const char *call) {
    Transfer wanted = {.site = site, .call = call};
    Error error = transfer_3d(p, &wanted);
    return error ? ended(call, error) : transfer(wanted, true, with(how, p->kind));
}

API Error hipMemcpy3D(const Copy3D *p) { return copy_3d(p, AT_ONCE, CALLER, "hipMemcpy3D"); }
API Error hipMemcpy3DAsync(const Copy3D *p, void *stream) { return copy_3d(p, in(stream), CALLER, "hipMemcpy3DAsync"); }

typedef struct {  // a side of hipMemcpy3DPeerParms
    void *array;
    size_t x, y, z;
    PitchedPointer at;
    int device;
} PeerSide;
typedef struct {
    PeerSide from, to;
    size_t width, height, depth;
} PeerCopy3D;

static Error copy_between(const PeerCopy3D *p, How how, void *site, const char *call) {
    Error error = p ? begin_between(p->to.device, p->from.device, how.waits) : INVALID_VALUE;
    if (error) return ended(call, error);
    Copy3D same = {.kind = BY_POINTERS, .width = p->width, .height = p->height, .depth = p->depth};
    same.from_array = p->from.array, same.from = p->from.at;
    same.from_x = p->from.x, same.from_y = p->from.y, same.from_z = p->from.z;
    same.to_array = p->to.array, same.to = p->to.at;
    same.to_x = p->to.x, same.to_y = p->to.y, same.to_z = p->to.z;
    return copy_3d(&same, how, site, call);
}

API Error hipMemcpy3DPeer(const PeerCopy3D *p) { return copy_between(p, AT_ONCE, CALLER, "hipMemcpy3DPeer"); }
API Error hipMemcpy3DPeerAsync(const PeerCopy3D *p, void *stream) {
    return copy_between(p, in(stream), CALLER, "hipMemcpy3DPeerAsync");
}

// Picks the pointer of a side by its hipMemoryType. HIP 5 numbers the types 0 host, 1 device, 2 array, 3 unified, 4 managed.
static Error pointer_of(int type, void *host, void *device, const void *array, const char *call, void **pointer) {
    enum { HOST = 1, DEVICE, MANAGED, ARRAY = 10, UNIFIED };
    static const int OLD[] = {HOST, DEVICE, ARRAY, UNIFIED, MANAGED};
    if (hip_version() < 60000000 && type >= 0 && type < 5) type = OLD[type];
    if (type == ARRAY && array) return no_images(call);
    *pointer = type == ARRAY ? NULL : type == HOST || type == 0 ? host : device;
    return type < 0 || type > UNIFIED || !*pointer ? INVALID_VALUE : SUCCESS;
}

typedef struct {
    size_t x, y;
    int type;
    void *host, *device, *array;
    size_t pitch;
} Side2D;
typedef struct {
    Side2D from, to;
    size_t width, height;
} Parameters2D;

static Error copy_parameters_2d(const Parameters2D *p, How how, void *site, const char *call) {
    if (!p) return ended(call, INVALID_VALUE);
    void *from, *to;
    Error error = pointer_of(p->from.type, p->from.host, p->from.device, p->from.array, call, &from);
    if (!error) error = pointer_of(p->to.type, p->to.host, p->to.device, p->to.array, call, &to);
    if (error) return ended(call, error);
    size_t from_pitch = p->from.pitch ? p->from.pitch : p->width, to_pitch = p->to.pitch ? p->to.pitch : p->width;
    return copy_2d((u8 *)to + p->to.y * to_pitch + p->to.x, to_pitch, (u8 *)from + p->from.y * from_pitch + p->from.x, from_pitch, p->width,
                   p->height, how, site, call);
}

API Error hipMemcpyParam2D(const Parameters2D *p) { return copy_parameters_2d(p, AT_ONCE, CALLER, "hipMemcpyParam2D"); }
API Error hipMemcpyParam2DAsync(const Parameters2D *p, void *stream) {
    return copy_parameters_2d(p, in(stream), CALLER, "hipMemcpyParam2DAsync");
}
API Error hipDrvMemcpy2DUnaligned(const Parameters2D *p) {
    return copy_parameters_2d(p, AT_ONCE, CALLER, "hipDrvMemcpy2DUnaligned");
}

Error copy_of_driver(const DriverCopy3D *p, const char *call, Copy3D *same) {
    if (!p) return INVALID_VALUE;
    *same = (Copy3D){.kind = BY_POINTERS, .width = p->width, .height = p->height, .depth = p->depth};
    Error error = pointer_of(p->from.type, p->from.host, p->from.device, p->from.array, call, &same->from.pointer);
    if (!error) error = pointer_of(p->to.type, p->to.host, p->to.device, p->to.array, call, &same->to.pointer);
    same->to.pitch = p->to.pitch, same->to.height = p->to.height;
    same->from.pitch = p->from.pitch, same->from.height = p->from.height;
    same->from_x = p->from.x, same->from_y = p->from.y, same->from_z = p->from.z;
    same->to_x = p->to.x, same->to_y = p->to.y, same->to_z = p->to.z;
    return error;
}

static Error copy_driver_3d(const DriverCopy3D *p, How how, void *site, const char *call) {
    Copy3D same;
    Error error = copy_of_driver(p, call, &same);
    return error ? ended(call, error) : copy_3d(&same, how, site, call);
}

API Error hipDrvMemcpy3D(const DriverCopy3D *p) { return copy_driver_3d(p, AT_ONCE, CALLER, "hipDrvMemcpy3D"); }
API Error hipDrvMemcpy3DAsync(const DriverCopy3D *p, void *stream) {
    return copy_driver_3d(p, in(stream), CALLER, "hipDrvMemcpy3DAsync");
}
