// Transfers, that is copies and fills: checks, and execution at once or in a stream.
#include "transfer.h"

#include <sys/mman.h>

// -- definedness ---------------------------------------------------------------------------------

static u8 *shadow_of(const void *pointer) {
    return state.shadow && in_arena(pointer) ? state.shadow + ((u64)pointer - arena_start) : NULL;
}

// Marks a dword of the arena as defined if the program stored there itself: undefined bytes hold the fill otherwise.
static void settle(const u8 *dword) {
    u32 held, *undefined = (u32 *)shadow_of(dword);
    memcpy(&held, dword, 4);
    if ((held ^ state.fill) & *undefined) *undefined = 0;
}

// Counts the bytes of the arena that have a bit that nothing wrote; *first: position of the first one.
static size_t undefined_bytes(const u8 *data, size_t bytes, size_t *first) {
    const u8 *shadow = shadow_of(data);
    size_t found = 0;
    for (size_t i = 0; i < bytes;) {
        u64 word = 0;
        if (i + 8 <= bytes && (memcpy(&word, shadow + i, 8), word == 0)) {
            i += 8;
            continue;
        }
        if (shadow[i]) settle((const u8 *)((u64)(data + i) & ~3ull));
        if (shadow[i] && !found++) *first = i;
        i++;
    }
    return found;
}

// Copies undefined bits with their bytes, which get the fill of their new place.
static void copy_undefined(u8 *to, u8 *target, const u8 *source, size_t bytes) {
    memmove(target, source, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (target[i]) to[i] = (u8)(state.fill >> 8 * ((u64)(to + i) & 3));
}

// -- execution -----------------------------------------------------------------------------------

static u8 *row_to(const Transfer *it, size_t y, size_t z) { return it->to + z * it->to_slice + y * it->to_pitch; }
static const u8 *row_from(const Transfer *it, size_t y, size_t z) { return it->from + z * it->from_slice + y * it->from_pitch; }

static bool is_one_row(const Transfer *it) {
    return it->depth == 1 && (it->height == 1 || (it->to_pitch == it->width && (!it->from || it->from_pitch == it->width)));
}

Error run_copy(Operation *operation) {
    Transfer *it = (Transfer *)operation;
    size_t rows = it->height, width = it->width, lost = 0, where = 0;
    if (is_one_row(it)) width *= rows, rows = 1;
    bool spread = false;
    for (size_t z = 0; z < it->depth; z++)
        for (size_t y = 0; y < rows; y++) {
            u8 *to = row_to(it, y, z);
            const u8 *from = row_from(it, y, z);
            u8 *target = shadow_of(to), *source = shadow_of(from);
            size_t first = 0, found = source ? undefined_bytes(from, width, &first) : 0;
            memmove(to, from, width);
            if (!state.shadow) continue;
            if (found && !target && !lost) where = (size_t)(from + first - it->from);
            if (!target) lost += found;
            else if (found) copy_undefined(to, target, source, width), spread = true;
            else memset(target, 0, width);
        }
    pthread_mutex_lock(&lock);
    Allocation *source = lost ? find_allocation(it->from) : NULL, *target = spread ? find_allocation(it->to) : NULL;
    u64 base = source ? source->address : 0;
    if (target) log_allocation(LOG_UNDEFINED, target, NULL);
    pthread_mutex_unlock(&lock);
    size_t all = it->width * it->height * it->depth;
    if (base)
        finding(lost == all ? "uninitialized-copy" : "partly-uninitialized-copy", it->site,
                "%s to the host: %zu of %zu bytes of @%llx were never written; the first is byte %llu", it->call, lost, all,
                (unsigned long long)base, (unsigned long long)((u64)it->from + where - base));
    return SUCCESS;
}

Error run_fill(Operation *operation) {
    Transfer *it = (Transfer *)operation;
    for (size_t z = 0; z < it->depth; z++)
        for (size_t y = 0; y < it->height; y++) {
            u8 *to = row_to(it, y, z), *shadow = shadow_of(to);
            if (it->element == 1) memset(to, (int)it->value, it->width);
            else if (it->element == 2)
                for (size_t i = 0; i < it->width / 2; i++) ((uint16_t *)to)[i] = (uint16_t)it->value;
            else
                for (size_t i = 0; i < it->width / 4; i++) ((u32 *)to)[i] = it->value;
            if (shadow) memset(shadow, 0, it->width);
        }
    return SUCCESS;
}

// -- checks --------------------------------------------------------------------------------------

// Returns the bytes from a transfer's first byte through its last on one side; SIZE_MAX if they overflow.
static size_t span(const Transfer *it, size_t pitch, size_t slice) {
    size_t rows, planes, all;
    bool past = __builtin_mul_overflow(it->height - 1, pitch, &rows) || __builtin_mul_overflow(it->depth - 1, slice, &planes) ||
                __builtin_add_overflow(rows, planes, &all) || __builtin_add_overflow(all, it->width, &all);
    return past ? SIZE_MAX : all;
}

// True if the program may access the bytes; otherwise reports a finding.
static bool is_accessible(const Transfer *it, const void *pointer, size_t bytes, bool reads) {
    const char *verb = reads ? "reads" : "writes";
    pthread_mutex_lock(&lock);
    Allocation *known = find_allocation(pointer), found = known ? *known : (Allocation){0};
    while (known && found.memory == MAPPED_MEMORY && bytes > found.address + found.bytes - (u64)pointer) {
        const void *end = (const void *)(found.address + found.bytes);  // memory mapped right after it continues it
        Allocation *following = find_allocation(end);
        if (!following || following->memory != MAPPED_MEMORY) break;
        bytes -= (size_t)((u64)end - (u64)pointer), pointer = end;
        found = *(known = following);
    }
    pthread_mutex_unlock(&lock);
    unsigned long long base = found.address;
    if (known && found.freed) {
        finding("use-after-free", it->site, "%s %s @%llx, which was freed before", it->call, verb, base);
        return false;
    }
    if (known && bytes > found.address + found.bytes - (u64)pointer) {
        if (found.memory == REGISTERED_MEMORY) return true;  // the program's memory continues
        finding("copy-past-allocation", it->site, "%s %s %zu bytes from byte %llu of @%llx, which ends at byte %llu", it->call,
                verb, bytes, (unsigned long long)((u64)pointer - base), base, (unsigned long long)found.bytes);
        return false;
    }
    if (known) return true;
    u64 page = (u64)pointer / 4096 * 4096;
    bool wraps = bytes > UINT64_MAX - (u64)pointer;
    if (!in_arena(pointer) && pointer && !wraps && msync((void *)page, (u64)pointer + bytes - page, MS_ASYNC) == 0) return true;
    finding("invalid-pointer", it->site, "%s %s %zu bytes at %p: no memory of the program or of the device is there", it->call,
            verb, bytes, pointer);
    return false;
}

Error check_transfer(const Transfer *it, bool reads) {
    if (!it->width || !it->height || !it->depth) return SUCCESS;
    if (!it->to || (reads && !it->from)) return INVALID_VALUE;
    if (it->height > 1 && (it->to_pitch < it->width || (reads && it->from_pitch < it->width))) return INVALID_PITCH;
    if (!is_accessible(it, it->to, span(it, it->to_pitch, it->to_slice), false)) return INVALID_VALUE;
    if (reads && !is_accessible(it, it->from, span(it, it->from_pitch, it->from_slice), true)) return INVALID_VALUE;
    return SUCCESS;
}

// Tells if a pointer is to memory that only the host can access, or only the device.
static void sides(const void *pointer, bool *pageable, bool *device) {
    pthread_mutex_lock(&lock);
    Allocation *found = find_allocation(pointer);
    *pageable = !found;
    *device = found && is_device_memory(found->memory);
    pthread_mutex_unlock(&lock);
}

// Reports a direction that the pointers contradict. HIP uses the pointers.
static void check_direction(const Transfer *it, int kind) {
    bool to_pageable, to_device, from_pageable, from_device;
    sides(it->to, &to_pageable, &to_device), sides(it->from, &from_pageable, &from_device);
    bool to_wrong = (kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE) ? to_pageable : kind != BY_POINTERS && to_device;
    bool from_wrong = (kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE) ? from_pageable : kind != BY_POINTERS && from_device;
    static const char *const NAMES[] = {"hipMemcpyHostToHost", "hipMemcpyHostToDevice", "hipMemcpyDeviceToHost",
                                        "hipMemcpyDeviceToDevice"};
    if (to_wrong || from_wrong)
        finding("copy-direction", it->site, "%s with %s: the %s is %s memory", it->call, NAMES[kind],
                to_wrong ? "destination" : "source", (to_wrong ? to_pageable : from_pageable) ? "the host's" : "the device's");
}

// -- one transfer, at once or in a stream --------------------------------------------------------

How in(void *stream) { return (How){stream, false, true, BY_POINTERS}; }

// Waits for the null stream of another device if the memory is on it.
static Error wait_owner(const void *pointer, int current) {
    Allocation found;
    bool other = look_up(pointer, &found) && is_device_memory(found.memory) && found.device != current;
    return other ? wait_default(found.device) : SUCCESS;
}

Error transfer(Transfer wanted, bool reads, How how) {
    Stream *stream;
    Error error = begin();
    if (!error) error = find_stream(how.stream, &stream);
    if (!error && (how.kind < 0 || (how.kind > BY_POINTERS && how.kind != 1024))) error = INVALID_DIRECTION;
    if (!error) error = check_transfer(&wanted, reads);
    if (!error) error = device_error(stream->device);
    if (error || !wanted.width || !wanted.height || !wanted.depth) return ended(wanted.call, error);
    if (reads && state.checked && how.kind < BY_POINTERS) check_direction(&wanted, how.kind);
    bool to_pageable = false, to_device = false, from_pageable = false, unused;
    sides(wanted.to, &to_pageable, &to_device);
    if (reads) sides(wanted.from, &from_pageable, &unused);
    else how.waits = how.waits && !to_device;  // a fill of device memory does not wait, by HIP's rules
    if (!reads && to_pageable) {
        finding("invalid-pointer", wanted.site, "%s fills %p, which is memory of the host alone", wanted.call, (void *)wanted.to);
        return ended(wanted.call, INVALID_VALUE);
    }
    Error (*run)(Operation *) = reads ? run_copy : run_fill;
    if (!stream->capture && (how.waits || to_pageable || from_pageable)) {
        error = how.given || stream->per_thread ? wait_stream(stream) : wait_default(stream->device);
        if (!error && !how.given) error = wait_owner(wanted.to, stream->device);
        if (!error && !how.given && reads) error = wait_owner(wanted.from, stream->device);
        if (!error) order_at_once(&wanted);
        return ended(wanted.call, error ? error : run(&wanted.operation));
    }
    if (stream->capture && how.waits) return ended(wanted.call, CAPTURE_UNSUPPORTED);
    Transfer *operation = make_operation(sizeof *operation, run);
    if (!operation) return ended(wanted.call, OUT_OF_MEMORY);
    wanted.operation = operation->operation;
    *operation = wanted;
    return ended(wanted.call, submit(stream, &operation->operation));
}

Error copy(void *to, const void *from, size_t bytes, How how, void *site, const char *call) {
    return transfer((Transfer){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1, .site = site, .call = call}, true,
                    how);
}

Error copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, How how,
                     void *site, const char *call) {
    return transfer((Transfer){.to = to,
                               .from = from,
                               .width = width,
                               .height = height,
                               .depth = 1,
                               .to_pitch = to_pitch,
                               .from_pitch = from_pitch,
                               .site = site,
                               .call = call},
                    true, how);
}

How with(How how, int kind) { return how.kind = kind, how; }

// -- for graphs ----------------------------------------------------------------------------------

static Error made_of(Transfer wanted, bool reads, Operation **made) {
    Error error = check_transfer(&wanted, reads);
    if (error) return error;
    Transfer *operation = make_operation(sizeof *operation, reads ? run_copy : run_fill);
    if (!operation) return OUT_OF_MEMORY;
    wanted.operation = operation->operation;
    *operation = wanted;
    *made = &operation->operation;
    return SUCCESS;
}

Error make_copy(void *to, const void *from, size_t bytes, Operation **made) {
    return made_of((Transfer){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1, .call = "a copy of a graph"}, true,
                   made);
}

Error make_copy_3d(const Copy3D *parameters, Operation **made) {
    Transfer wanted = {.call = "a copy of a graph"};
    Error error = transfer_3d(parameters, &wanted);
    return error ? error : made_of(wanted, true, made);
}

Error make_fill(void *to, size_t pitch, u32 value, u32 element, size_t width, size_t height, Operation **made) {
    Transfer wanted = {.to = to,
                       .to_pitch = pitch,
                       .width = width * element,
                       .height = height,
                       .depth = 1,
                       .element = element,
                       .value = value,
                       .call = "a fill of a graph"};
    return made_of(wanted, false, made);
}
