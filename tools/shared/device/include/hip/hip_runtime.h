// hip.h has all of it but what hipcc includes by itself.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <hip/hip_runtime_api.h>
#include <new>
#include <utility>
