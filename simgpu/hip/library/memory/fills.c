// Fills, in one to three dimensions.
#include "transfer.h"

static Error fill(void *to, u32 value, u32 element, size_t pitch, size_t width, size_t height, size_t depth, size_t slice, How how,
                  void *site, const char *call) {
    return transfer((Transfer){.to = to,
                               .width = width,
                               .height = height,
                               .depth = depth,
                               .to_pitch = pitch,
                               .to_slice = slice,
                               .element = element,
                               .value = value,
                               .site = site,
                               .call = call},
                    false, how);
}

#define FILL_1D(NAME, ARGUMENT, ELEMENT, COUNT)                                                             \
    API Error NAME(void *to, ARGUMENT value, size_t count) {                                                \
        return fill(to, (u32)value, ELEMENT, 0, count * COUNT, 1, 1, 0, AT_ONCE, CALLER, #NAME);            \
    }                                                                                                       \
    API Error NAME##Async(void *to, ARGUMENT value, size_t count, void *stream) {                           \
        return fill(to, (u32)value, ELEMENT, 0, count * COUNT, 1, 1, 0, in(stream), CALLER, #NAME "Async"); \
    }

FILL_1D(hipMemset, int, 1, 1)
FILL_1D(hipMemsetD8, unsigned char, 1, 1)
FILL_1D(hipMemsetD16, unsigned short, 2, 2)
FILL_1D(hipMemsetD32, int, 4, 4)

#define FILL_2D(NAME, ARGUMENT, ELEMENT)                                                                               \
    API Error NAME(void *to, size_t pitch, ARGUMENT value, size_t width, size_t height) {                              \
        return fill(to, (u32)value, ELEMENT, pitch, width * ELEMENT, height, 1, 0, AT_ONCE, CALLER, #NAME);            \
    }                                                                                                                  \
    API Error NAME##Async(void *to, size_t pitch, ARGUMENT value, size_t width, size_t height, void *stream) {         \
        return fill(to, (u32)value, ELEMENT, pitch, width * ELEMENT, height, 1, 0, in(stream), CALLER, #NAME "Async"); \
    }

FILL_2D(hipMemset2D, int, 1)
FILL_2D(hipMemsetD2D8, unsigned char, 1)
FILL_2D(hipMemsetD2D16, unsigned short, 2)
FILL_2D(hipMemsetD2D32, unsigned int, 4)

API Error hipMemset3D(PitchedPointer to, int value, Extent extent) {
    return fill(to.pointer, (u32)value, 1, to.pitch, extent.width, extent.height, extent.depth, to.pitch * to.height, AT_ONCE,
                CALLER, "hipMemset3D");
}

API Error hipMemset3DAsync(PitchedPointer to, int value, Extent extent, void *stream) {
    return fill(to.pointer, (u32)value, 1, to.pitch, extent.width, extent.height, extent.depth, to.pitch * to.height, in(stream),
                CALLER, "hipMemset3DAsync");
}
