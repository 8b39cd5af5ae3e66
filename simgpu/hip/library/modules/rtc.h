// Results of hiprtc's compiler and linker.
#ifndef SIMGPU_RTC_H
#define SIMGPU_RTC_H

#include "internal.h"

// hiprtcResult
enum {
    COMPILED = 0,
    NO_MEMORY = 1,
    NO_PROGRAM = 2,
    INVALID_INPUT = 3,
    INVALID_PROGRAM = 4,
    WRONG_SOURCE = 6,
    NO_NAMES_NOW = 8,
    NO_NAMES_YET = 9,
    INVALID_NAME = 10,
    INTERNAL = 11,
    LINKING = 100,
};

#endif
