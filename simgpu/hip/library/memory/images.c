// Arrays, textures and surfaces: no device here has any, so that none that a program lets go of exists. Calls that make or use one are
// `no_images`.
#include "internal.h"

#define NONE(NAME)                     \
    API Error NAME(const void *image); \
    Error NAME(const void *image) { return (void)image, done(INVALID_VALUE); }

NONE(hipFreeArray)
NONE(hipArrayDestroy)
NONE(hipFreeMipmappedArray)
NONE(hipMipmappedArrayDestroy)
