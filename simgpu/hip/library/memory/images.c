// Arrays, textures and surfaces: no device here has any. So calls that free one return INVALID_VALUE, and calls that make or use
// one return `no_images`.
#include "internal.h"

#define NONE(NAME)                     \
    API Error NAME(const void *image); \
    Error NAME(const void *image) { return (void)image, done(INVALID_VALUE); }

NONE(hipFreeArray)
NONE(hipArrayDestroy)
NONE(hipFreeMipmappedArray)
NONE(hipMipmappedArrayDestroy)

// Calls that make an array take a description of it.
#define MAKES(NAME)                                                            \
    API Error NAME(const void *image, const void *description);                \
    Error NAME(const void *image, const void *description) {                   \
        return image && description ? no_images(#NAME) : done(INVALID_VALUE);  \
    }

MAKES(hipMallocArray)
MAKES(hipMalloc3DArray)
MAKES(hipMallocMipmappedArray)
MAKES(hipArrayCreate)
MAKES(hipArray3DCreate)

// ROCm asks for images before it looks at a surface's arguments (clr, hipamd/src/hip_surface.cpp); to destroy none succeeds.
API Error hipCreateSurfaceObject(void **surface, const void *resource) {
    (void)surface, (void)resource;
    return no_images("hipCreateSurfaceObject");
}

API Error hipDestroySurfaceObject(void *surface) { return done(surface ? INVALID_VALUE : SUCCESS); }

// Copies of rows have the array in different places of their arguments. NULL is no handle.
#define REFUSE(NAME, ARRAY) return ARRAY ? no_images(NAME) : done(INVALID_HANDLE)

API Error hipMemcpy2DToArray(void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind) {
    (void)x, (void)y, (void)from, (void)pitch, (void)width, (void)height, (void)kind;
    REFUSE("hipMemcpy2DToArray", to);
}

API Error hipMemcpy2DToArrayAsync(void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind,
                                  void *stream) {
    (void)x, (void)y, (void)from, (void)pitch, (void)width, (void)height, (void)kind, (void)stream;
    REFUSE("hipMemcpy2DToArrayAsync", to);
}

API Error hipMemcpy2DFromArray(void *to, size_t pitch, const void *from, size_t x, size_t y, size_t width, size_t height, int kind) {
    (void)to, (void)pitch, (void)x, (void)y, (void)width, (void)height, (void)kind;
    REFUSE("hipMemcpy2DFromArray", from);
}

API Error hipMemcpy2DFromArrayAsync(void *to, size_t pitch, const void *from, size_t x, size_t y, size_t width, size_t height, int kind,
                                    void *stream) {
    (void)to, (void)pitch, (void)x, (void)y, (void)width, (void)height, (void)kind, (void)stream;
    REFUSE("hipMemcpy2DFromArrayAsync", from);
}

// A description of texels needs no image. x, y, z, w: bits of each channel.
typedef struct {
    int x, y, z, w, kind;
} Channels;
API Channels hipCreateChannelDesc(int x, int y, int z, int w, int kind) { return (Channels){x, y, z, w, kind}; }
