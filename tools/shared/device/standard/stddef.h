// The C library's stddef.h.
#pragma once
#pragma clang system_header
#undef NULL
#define NULL __null
#define offsetof(type, member) __builtin_offsetof(type, member)
typedef decltype(nullptr) nullptr_t;
