// Copies of bytes and of rows, and of variables.
#include "transfer.h"

API Error hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    return copy(to, from, bytes, with(AT_ONCE, kind), CALLER, "hipMemcpy");
}
API Error hipMemcpyHtoD(void *to, void *from, size_t bytes) { return copy(to, from, bytes, AT_ONCE, CALLER, "hipMemcpyHtoD"); }
API Error hipMemcpyDtoH(void *to, void *from, size_t bytes) { return copy(to, from, bytes, AT_ONCE, CALLER, "hipMemcpyDtoH"); }
API Error hipMemcpyDtoD(void *to, void *from, size_t bytes) { return copy(to, from, bytes, AT_ONCE, CALLER, "hipMemcpyDtoD"); }

API Error hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return copy(to, from, bytes, with(in(stream), kind), CALLER, "hipMemcpyAsync");
}

API Error hipMemcpyHtoDAsync(void *to, void *from, size_t bytes, void *stream) {
    return copy(to, from, bytes, in(stream), CALLER, "hipMemcpyHtoDAsync");
}
API Error hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, void *stream) {
    return copy(to, from, bytes, in(stream), CALLER, "hipMemcpyDtoHAsync");
}
API Error hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, void *stream) {
    return copy(to, from, bytes, in(stream), CALLER, "hipMemcpyDtoDAsync");
}

API Error hipMemcpyWithStream(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return copy(to, from, bytes, (How){stream, true, true, kind}, CALLER, "hipMemcpyWithStream");
}

Error begin_between(int to_device, int from_device, bool waits) {
    int devices = (int)state.devices;
    Error error = begin();
    if (!error && (to_device < 0 || from_device < 0 || to_device >= devices || from_device >= devices)) error = INVALID_DEVICE;
    if (!error && waits && to_device != current_device) error = wait_default(to_device);
    if (!error && waits && from_device != current_device) error = wait_default(from_device);
    return error;
}

API Error hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    Error error = begin_between(to_device, from_device, true);
    return error ? done(error) : copy(to, from, bytes, AT_ONCE, CALLER, "hipMemcpyPeer");
}

API Error hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream) {
    Error error = begin_between(to_device, from_device, false);
    return error ? done(error) : copy(to, from, bytes, in(stream), CALLER, "hipMemcpyPeerAsync");
}

API Error hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
    return copy_2d(to, to_pitch, from, from_pitch, width, height, with(AT_ONCE, kind), CALLER, "hipMemcpy2D");
}

API Error hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
                           void *stream) {
    return copy_2d(to, to_pitch, from, from_pitch, width, height, with(in(stream), kind), CALLER, "hipMemcpy2DAsync");
}

// -- variables -----------------------------------------------------------------------------------

static Error copy_symbol(void *other, const void *symbol, size_t bytes, size_t offset, bool to_symbol, How how, void *site,
                         const char *call) {
    u8 *variable;
    size_t size;
    Error error = begin();
    if (!error && how.kind == (to_symbol ? DEVICE_TO_HOST : HOST_TO_DEVICE)) error = INVALID_DIRECTION;
    if (!error) error = variable_of(symbol, current_device, (void **)&variable, &size);
    if (!error && (offset > size || bytes > size - offset)) {
        finding("copy-past-allocation", site, "%s of %zu bytes at byte %zu of a variable of %zu", call, bytes, offset, size);
        error = INVALID_VALUE;
    }
    if (error) return done(error);
    return to_symbol ? copy(variable + offset, other, bytes, how, site, call)
                     : copy(other, variable + offset, bytes, how, site, call);
}

API Error hipMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) {
    return copy_symbol((void *)from, symbol, bytes, offset, true, with(AT_ONCE, kind), CALLER, "hipMemcpyToSymbol");
}

API Error hipMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind) {
    return copy_symbol(to, symbol, bytes, offset, false, with(AT_ONCE, kind), CALLER, "hipMemcpyFromSymbol");
}

API Error hipMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int kind, void *stream) {
    return copy_symbol((void *)from, symbol, bytes, offset, true, with(in(stream), kind), CALLER, "hipMemcpyToSymbolAsync");
}

API Error hipMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, int kind, void *stream) {
    return copy_symbol(to, symbol, bytes, offset, false, with(in(stream), kind), CALLER, "hipMemcpyFromSymbolAsync");
}

// Copies of one stream are in order here, whatever the attributes allow.
API Error hipMemcpyBatchAsync(void **to, void **from, size_t *bytes, size_t count, const void *attributes, const size_t *which,
                              size_t kinds, size_t *failed, void *stream) {
    if (!to || !from || !bytes || !count || !attributes || !which || !kinds || kinds > count) return done(INVALID_VALUE);
    for (size_t at = 0; at < count; at++) {
        Error error = copy(to[at], from[at], bytes[at], in(stream), CALLER, "hipMemcpyBatchAsync");
        if (!error) continue;
        if (failed) *failed = at;
        return error;
    }
    return SUCCESS;
}
