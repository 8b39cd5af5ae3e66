// The C library's assert.h: hip.h has what kernels may use of it.
#pragma once
