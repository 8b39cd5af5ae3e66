// hiprtc's linker: turns bitcode of clang, or of hiprtc with -fgpu-rdc, into a code object. The server runs the linker.
#include "rtc.h"

#include <stdio.h>

enum { BITCODE = 100 };  // HIPRTC_JIT_INPUT_LLVM_BITCODE, the only hiprtcJITInputType accepted here

typedef struct {
    Handle handle;
    u8 *parts;  // bytes of all parts, in order
    u32 *sizes, count;
    size_t bytes;
    Reply linked;
} Link;

static int add_part(Link *link, const void *part, size_t bytes) {
    if (bytes > UINT32_MAX) return NO_MEMORY;
    u8 *parts = realloc(link->parts, link->bytes + bytes);
    if (!parts) return NO_MEMORY;
    link->parts = parts;
    u32 *sizes = realloc(link->sizes, (link->count + 1) * sizeof *sizes);
    if (!sizes) return NO_MEMORY;
    link->sizes = sizes;
    memcpy(parts + link->bytes, part, bytes);
    sizes[link->count++] = (u32)bytes, link->bytes += bytes;
    return COMPILED;
}

API int hiprtcLinkCreate(u32 options, const int *names, void **values, Link **result) {
    if (!result || (options && (!names || !values))) return INVALID_INPUT;
    *result = make_handle(LINK_STATE, sizeof **result);
    return *result ? COMPILED : NO_MEMORY;
}

API int hiprtcLinkAddData(Link *link, int type, const void *image, size_t bytes, const char *name, u32 options, const int *names,
                          void **values) {
    (void)name, (void)options, (void)names, (void)values;
    if (!image || !bytes || !is_handle(link, LINK_STATE)) return INVALID_INPUT;
    if (type > BITCODE) say("hiprtc's linker takes LLVM bitcode; bundles of it and archives are not simulated");
    return type == BITCODE ? add_part(link, image, bytes) : INVALID_INPUT;
}

API int hiprtcLinkAddFile(Link *link, int type, const char *path, u32 options, const int *names, void **values) {
    if (!path || !is_handle(link, LINK_STATE) || type < BITCODE) return INVALID_INPUT;
    FILE *file = fopen(path, "rb");
    if (!file) return NO_PROGRAM;
    char *content = NULL;
    long bytes = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    bool fine = bytes > 0 && !fseek(file, 0, SEEK_SET) && (content = malloc((size_t)bytes)) &&
                fread(content, 1, (size_t)bytes, file) == (size_t)bytes;
    fclose(file);
    int result = fine ? hiprtcLinkAddData(link, type, content, (size_t)bytes, path, options, names, values) : NO_PROGRAM;
    free(content);
    return result;
}

API int hiprtcLinkComplete(Link *link, void **code, size_t *bytes) {
    if (!code || !bytes || !is_handle(link, LINK_STATE)) return INVALID_INPUT;
    if (begin()) return INTERNAL;
    u32 head[] = {(u32)current_device, link->count};
    size_t table = link->count * sizeof *link->sizes;
    u8 *body = malloc(table + link->bytes + 1);
    if (!body) return NO_MEMORY;
    if (table) memcpy(body, link->sizes, table), memcpy(body + table, link->parts, link->bytes);
    free(link->linked.data);
    Error error = ask(LINK, head, sizeof head, body, table + link->bytes, &link->linked);
    free(body);
    if (error) return LINKING;
    *code = link->linked.data, *bytes = link->linked.bytes;
    return COMPILED;
}

API int hiprtcLinkDestroy(Link *link) {
    if (!is_handle(link, LINK_STATE)) return INVALID_INPUT;
    free(link->parts), free(link->sizes), free(link->linked.data);
    end_handle(link, LINK_STATE);
    return COMPILED;
}

// -- the same calls under the runtime's names ----------------------------------------------------

static Error of_runtime(int result) {
    return done(result == COMPILED       ? SUCCESS
                : result == NO_MEMORY    ? OUT_OF_MEMORY
                : result == NO_PROGRAM   ? FILE_NOT_FOUND
                : result == INVALID_INPUT ? INVALID_VALUE
                                          : UNKNOWN_ERROR);
}

API Error hipLinkCreate(u32 options, const int *names, void **values, Link **result) {
    return of_runtime(hiprtcLinkCreate(options, names, values, result));
}
API Error hipLinkAddData(Link *link, int type, const void *image, size_t bytes, const char *name, u32 options, const int *names,
                         void **values) {
    return of_runtime(hiprtcLinkAddData(link, type, image, bytes, name, options, names, values));
}
API Error hipLinkAddFile(Link *link, int type, const char *path, u32 options, const int *names, void **values) {
    return of_runtime(hiprtcLinkAddFile(link, type, path, options, names, values));
}
API Error hipLinkComplete(Link *link, void **code, size_t *bytes) { return of_runtime(hiprtcLinkComplete(link, code, bytes)); }
API Error hipLinkDestroy(Link *link) { return of_runtime(hiprtcLinkDestroy(link)); }
