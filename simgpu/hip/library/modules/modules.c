// Code objects, and the kernels and variables in them.
#include "internal.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define BUNDLE_MAGIC "__CLANG_OFFLOAD_BUNDLE__"
#define COMPRESSED_MAGIC "CCOB"
#define LARGEST_BUNDLE (1ull << 32)

// -- images --------------------------------------------------------------------------------------

static u64 word(const u8 *at, int bytes) {
    u64 value = 0;
    memcpy(&value, at, (size_t)bytes);
    return value;
}

static size_t bundle_bytes(const u8 *image) {
    const u8 *at = image + strlen(BUNDLE_MAGIC);
    u64 entries = word(at, 8), end = 0;
    at += 8;
    for (u64 i = 0; i < entries && i < 64; i++) {
        u64 offset = word(at, 8), bytes = word(at + 8, 8), name = word(at + 16, 8);
        if (offset > LARGEST_BUNDLE || bytes > LARGEST_BUNDLE || name > 4096) return 0;
        if (offset + bytes > end) end = offset + bytes;
        at += 24 + name;
    }
    return end > (size_t)(at - image) ? end : (size_t)(at - image);
}

static size_t elf_bytes(const u8 *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    u64 end = header.e_shoff + (u64)header.e_shnum * header.e_shentsize;
    u64 segments = header.e_phoff + (u64)header.e_phnum * header.e_phentsize;
    return end > segments ? end : segments;
}

// Returns how many of the next `most` bytes are mapped.
static size_t mapped_bytes(const u8 *from, u64 most) {
    u64 end = (u64)from / 4096 * 4096;
    while (end < (u64)from + most && !msync((void *)end, 4096, MS_ASYNC)) end += 4096;
    if (end <= (u64)from) return 0;
    return end - (u64)from < most ? end - (u64)from : most;
}

static size_t compressed_bytes(const u8 *image) {
    u64 version = word(image + 4, 2);
    if (version == 2) return word(image + 8, 4);
    if (version == 3) return word(image + 8, 8);
    if (version != 1) return 0;
    // Version 1 gives only the expanded size. With zlib and zstd, incompressible data grows by less than 1/64 and a page.
    u64 expanded = word(image + 8, 4);
    return mapped_bytes(image, expanded + expanded / 64 + 4096);
}

// Returns the bytes of a code object, a bundle or a compressed bundle by its header, or an upper bound; 0 if it is none of them.
size_t image_bytes(const void *given) {
    const u8 *image = given;
    if (!memcmp(image, COMPRESSED_MAGIC, 4)) return compressed_bytes(image);
    if (!memcmp(image, ELFMAG, SELFMAG)) return elf_bytes(image);
    if (!memcmp(image, BUNDLE_MAGIC, strlen(BUNDLE_MAGIC))) return bundle_bytes(image);
    return 0;
}

Error load_module(int device, const void *image, size_t bytes, Module **found) {
    u32 head = (u32)device;
    Reply reply;
    u64 page = (u64)image / 4096 * 4096;
    // The header may be wrong: read only memory that is mapped.
    if (bytes > LARGEST_BUNDLE - 64 || msync((void *)page, (u64)image + bytes - page, MS_ASYNC) < 0) return INVALID_IMAGE;
    Error error = ask(LOAD, &head, sizeof head, image, bytes, &reply);
    if (!error && reply.bytes >= 4) {
        Module *made = make_handle(MODULE, sizeof *made);
        if (made) {
            made->device = device, made->number = (u32)word(reply.data, 4);
            for (size_t at = 4; at + 16 <= reply.bytes; at += 16)
                add_module_memory(word(reply.data + at, 8), word(reply.data + at + 8, 8), device);
        }
        *found = made;
        error = made ? SUCCESS : OUT_OF_MEMORY;
    }
    free(reply.data);
    return error;
}

// -- kernels and variables -----------------------------------------------------------------------

static Function *known_function(Module *module, const char *name) {
    for (u32 i = 0; i < module->count; i++)
        if (!strcmp(module->functions[i]->name, name)) return module->functions[i];
    return NULL;
}

static Function *made_function(Module *module, const char *name, const Reply *reply) {
    enum { FIELDS = 11 };
    u32 fields[FIELDS];
    if (reply->bytes < sizeof fields) return NULL;
    memcpy(fields, reply->data, sizeof fields);
    Function *made = make_handle(FUNCTION, sizeof *made);
    Function **grown = realloc(module->functions, (module->count + 1) * sizeof *grown);
    if (grown) module->functions = grown;
    if (!made || !grown || reply->bytes < sizeof fields + fields[3] * sizeof(Argument)) return NULL;
    made->module = module, made->name = strdup(name);
    made->number = fields[0], made->kernarg_bytes = fields[1], made->explicit_bytes = fields[2], made->arguments = fields[3];
    made->max_block = fields[4], made->lds = fields[5], made->private_bytes = fields[6];
    made->vgprs = fields[7], made->agprs = fields[8], made->sgprs = fields[9], made->version = fields[10];
    made->argument = malloc(made->arguments * sizeof(Argument) + 1);
    if (!made->name || !made->argument) return NULL;
    memcpy(made->argument, reply->data + sizeof fields, made->arguments * sizeof(Argument));
    return module->functions[module->count++] = made;
}

Error find_function(Module *module, const char *name, Function **found) {
    pthread_mutex_lock(&lock);
    Function *known = known_function(module, name);
    pthread_mutex_unlock(&lock);
    if (known) return *found = known, SUCCESS;
    Reply reply;
    Error error = ask(KERNEL, &module->number, 4, name, strlen(name), &reply);
    if (!error) {
        pthread_mutex_lock(&lock);
        known = known_function(module, name);
        if (!known) known = made_function(module, name, &reply);
        pthread_mutex_unlock(&lock);
        if (known) *found = known;
        else error = OUT_OF_MEMORY;
    }
    free(reply.data);
    return error;
}

Error find_variable(Module *module, const char *name, void **address, size_t *bytes) {
    Reply reply;
    Error error = ask(SYMBOL, &module->number, 4, name, strlen(name), &reply);
    if (!error && reply.bytes == 16) {
        *address = (void *)word(reply.data, 8);
        *bytes = word(reply.data + 8, 8);
    }
    free(reply.data);
    return error;
}

// -- the calls -----------------------------------------------------------------------------------

static Error load_image(Module **result, const void *image) {
    Error error = begin();
    if (error) return done(error);
    if (!result || !image) return done(INVALID_VALUE);
    size_t bytes = image_bytes(image);
    return done(bytes ? load_module(current_device, image, bytes, result) : INVALID_IMAGE);
}

API Error hipModuleLoadData(Module **result, const void *image) { return load_image(result, image); }
API Error hipModuleLoadFatBinary(Module **result, const void *image) { return load_image(result, image); }

API Error hipModuleLoadDataEx(Module **result, const void *image, u32 count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return load_image(result, image);
}

API Error hipModuleLoad(Module **result, const char *path) {
    Error error = begin();
    if (error) return done(error);
    if (!result || !path || !*path) return done(INVALID_VALUE);
    FILE *file = fopen(path, "rb");
    if (!file) return done(FILE_NOT_FOUND);
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    void *image = bytes > 0 ? malloc((size_t)bytes) : NULL;
    bool whole = image && fread(image, 1, (size_t)bytes, file) == (size_t)bytes;
    fclose(file);
    error = whole ? load_module(current_device, image, (size_t)bytes, result) : INVALID_IMAGE;
    free(image);
    return done(error);
}

API Error hipModuleUnload(Module *module) {
    Error error = begin();
    if (!error && !is_handle(module, MODULE)) error = was_handle(module, MODULE) ? NOT_FOUND : INVALID_HANDLE;
    if (error) return done(error);
    wait_device(module->device);
    for (u32 i = 0; i < module->count; i++) end_handle(module->functions[i], FUNCTION);
    end_handle(module, MODULE);
    return done(ask(UNLOAD, &module->number, 4, NULL, 0, NULL));
}

API Error hipModuleGetFunction(Function **result, Module *module, const char *name) {
    Error error = begin();
    if (!error && (!result || !name)) error = INVALID_VALUE;
    if (!error && !is_handle(module, MODULE)) error = INVALID_HANDLE;
    if (!error && !*name) error = INVALID_VALUE;
    return done(error ? error : find_function(module, name, result));
}

API Error hipModuleGetGlobal(void **address, size_t *bytes, Module *module, const char *name) {
    Error error = begin();
    void *at;
    size_t size;
    if (!error && ((!address && !bytes) || !name || !*name)) error = INVALID_VALUE;
    if (!error && !is_handle(module, MODULE)) error = INVALID_HANDLE;
    // A managed variable is a pointer. Its data is the variable NAME.managed.
    char managed[1024];
    if (!error && snprintf(managed, sizeof managed, "%s.managed", name) >= (int)sizeof managed) error = NOT_FOUND;
    if (!error && find_variable(module, managed, &at, &size)) error = find_variable(module, name, &at, &size);
    if (error) return done(error);
    if (address) *address = at;
    if (bytes) *bytes = size;
    return done(SUCCESS);
}

API Error hipGetSymbolAddress(void **address, const void *symbol) {
    size_t bytes;
    Error error = begin();
    if (!error && !address) error = INVALID_VALUE;
    return done(error ? error : variable_of(symbol, current_device, address, &bytes));
}

API Error hipGetSymbolSize(size_t *bytes, const void *symbol) {
    void *address;
    Error error = begin();
    if (!error && !bytes) error = INVALID_VALUE;
    return done(error ? error : variable_of(symbol, current_device, &address, bytes));
}

API Error hipGetFuncBySymbol(Function **result, const void *host) {
    Error error = begin();
    if (!error && !result) error = INVALID_VALUE;
    return done(error ? error : function_of(host, current_device, result));
}

API const char *hipKernelNameRef(const Function *function) { return is_handle(function, FUNCTION) ? function->name : NULL; }

// HIP 7.2's libraries are modules here, and their kernels a module's.
API Error hipLibraryLoadData(Module **result, const void *image, void **jit, void **jit_values, u32 jits, void **options,
                             void **values, u32 count) {
    (void)jit, (void)jit_values, (void)jits, (void)options, (void)values, (void)count;
    return load_image(result, image);
}

API Error hipLibraryLoadFromFile(Module **result, const char *path, void **jit, void **jit_values, u32 jits, void **options,
                                 void **values, u32 count) {
    (void)jit, (void)jit_values, (void)jits, (void)options, (void)values, (void)count;
    return hipModuleLoad(result, path);
}

API Error hipLibraryGetKernel(Function **result, Module *library, const char *name) {
    return hipModuleGetFunction(result, library, name);
}

API Error hipLibraryUnload(Module *library) { return hipModuleUnload(library); }
