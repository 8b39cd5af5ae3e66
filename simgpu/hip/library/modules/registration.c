// Fat binaries, kernels and variables that clang's constructors register for a program. Registering only notes them: a fat binary
// goes to the server when a device first needs it.
#include "internal.h"

#define FAT_BINARY_MAGIC 0x48495046u  // "HIPF"

typedef struct Managed {
    void **pointer;
    const char *name;
    struct Managed *next;
} Managed;

typedef struct FatBinary {
    const void *image;
    Module *module[MAX_DEVICES];
    Error failure[MAX_DEVICES];
    Managed *managed;
} FatBinary;

typedef struct {
    const void *host;  // stub of a function, host copy of a variable
    FatBinary *binary;
    const char *name;
    Function *function[MAX_DEVICES];
} Registered;

static Registered *slots;  // a hash table by host address
static size_t slot_count, slots_used;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static Registered *slot_of(const void *host) {
    if (!slot_count) return NULL;
    size_t at = ((u64)host * 0x9e3779b97f4a7c15ull >> 20) & (slot_count - 1);
    while (slots[at].host && slots[at].host != host) at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

static void note(const void *host, FatBinary *binary, const char *name) {
    pthread_mutex_lock(&loading);
    if (2 * (slots_used + 1) > slot_count) {
        Registered *before = slots;
        size_t number = slot_count;
        slot_count = number ? 2 * number : 256;
        slots = calloc(slot_count, sizeof *slots);
        for (size_t i = 0; slots && i < number; i++)
            if (before[i].host) *slot_of(before[i].host) = before[i];
        free(before);
        if (!slots) slot_count = slots_used = 0;
    }
    Registered *slot = slot_of(host);
    if (slot) {
        slots_used += !slot->host;
        *slot = (Registered){.host = host, .binary = binary, .name = name};
    }
    pthread_mutex_unlock(&loading);
}

API void **__hipRegisterFatBinary(const void *data) {
    const struct {
        u32 magic, version;
        const void *image;
        void *unused;
    } *wrapper = data;
    FatBinary *made = calloc(1, sizeof *made);
    if (made && wrapper->magic == FAT_BINARY_MAGIC) made->image = wrapper->image;
    return (void **)made;
}

API void __hipUnregisterFatBinary(void **given) {
    FatBinary *binary = (FatBinary *)given;
    pthread_mutex_lock(&loading);
    if (binary) binary->image = NULL;  // its library is closed, or the program ends
    pthread_mutex_unlock(&loading);
}

API void __hipRegisterFunction(void **binary, const void *host, char *device, const char *name, u32 limit, void *a, void *b,
                               void *c, void *d, int *e) {
    (void)device, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
    note(host, (FatBinary *)binary, name);
}

API void __hipRegisterVar(void **binary, void *host, char *device, char *name, int external, size_t bytes, int constant,
                          int global) {
    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    note(host, (FatBinary *)binary, name);
}

// Allocates a managed variable in the arena at once: the program may read its pointer at any time.
API void __hipRegisterManagedVar(void *given, void **pointer, void *initial, const char *name, size_t bytes, u32 align) {
    (void)align;
    FatBinary *binary = given;
    Managed *made = calloc(1, sizeof *made);
    int arena;
    if (!made || !map_arena(&arena) || begin() || allocate(MANAGED_MEMORY, 0, bytes, 1, NULL, pointer)) {
        say("no memory for the managed variable %s", name);
        free(made);
        return;
    }
    memcpy(*pointer, initial, bytes);
    *made = (Managed){pointer, name, binary->managed};
    binary->managed = made;
    note(pointer, binary, name);
}

API void __hipRegisterTexture(void **m, void *v, char *h, char *d, int t, int n, int e) {
    (void)m, (void)v, (void)h, (void)d, (void)t, (void)n, (void)e;
}
API void __hipRegisterSurface(void **m, void *v, char *h, char *d, int t, int e) {
    (void)m, (void)v, (void)h, (void)d, (void)t, (void)e;
}

static Error load_binary(FatBinary *binary, int device) {
    if (binary->module[device] || binary->failure[device]) return binary->failure[device];
    size_t bytes = binary->image ? image_bytes(binary->image) : 0;
    Error error = bytes ? load_module(device, binary->image, bytes, &binary->module[device]) : INVALID_IMAGE;
    for (Managed *at = binary->managed; at && !error; at = at->next) {
        void *variable;
        size_t size;
        if (!find_variable(binary->module[device], at->name, &variable, &size)) *(void **)variable = *at->pointer;
    }
    return binary->failure[device] = error;
}

static Error registered(const void *host, int device, Registered **found) {
    pthread_mutex_lock(&loading);
    Registered *slot = slot_of(host);
    Error error = slot && slot->host && host ? SUCCESS : NOT_FOUND;
    if (!error) error = load_binary(slot->binary, device);
    pthread_mutex_unlock(&loading);
    *found = slot;
    return error;
}

Error function_of(const void *host, int device, Function **found) {
    if (is_handle(host, FUNCTION)) return *found = (Function *)host, SUCCESS;
    Registered *slot;
    Error error = registered(host, device, &slot);
    if (error) return error == NOT_FOUND ? INVALID_DEVICE_FUNCTION : error;
    if (!slot->function[device]) {
        error = find_function(slot->binary->module[device], slot->name, &slot->function[device]);
        if (error) return error == NOT_FOUND ? INVALID_DEVICE_FUNCTION : error;
    }
    *found = slot->function[device];
    return SUCCESS;
}

Error variable_of(const void *host, int device, void **address, size_t *bytes) {
    Registered *slot;
    Error error = registered(host, device, &slot);
    if (!error) {
        for (Managed *at = slot->binary->managed; at; at = at->next)
            if (at->pointer == host) {
                pthread_mutex_lock(&lock);
                Allocation *found = find_allocation(*at->pointer);
                *address = *at->pointer, *bytes = found ? found->bytes : 0;
                pthread_mutex_unlock(&lock);
                return SUCCESS;
            }
        error = find_variable(slot->binary->module[device], slot->name, address, bytes);
    }
    return error == NOT_FOUND ? INVALID_SYMBOL : error;
}

API const char *hipKernelNameRefByPtr(const void *host, void *stream) {
    (void)stream;
    Registered *slot = slot_of(host);
    return slot && slot->host ? slot->name : NULL;
}
