// Attributes of kernels.
#include "internal.h"

typedef struct {
    int binary_version, cache_mode;
    size_t constant_bytes, private_bytes;
    int dynamic_lds, max_block, registers, carveout, ptx_version;
    size_t lds;
} FunctionAttributes;

API Error hipFuncGetAttributes(FunctionAttributes *result, const void *host) {
    Function *function;
    Error error = begin();
    if (!error && !result) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    int lds = (int)state.device[current_device].lds;
    *result = (FunctionAttributes){(int)function->version,
                                   0,
                                   0,
                                   function->private_bytes,
                                   lds - (int)function->lds,
                                   (int)function->max_block,
                                   (int)(function->vgprs + function->agprs),
                                   function->attribute_carveout,
                                   (int)function->version,
                                   function->lds};
    return done(SUCCESS);
}

// attribute: a hipFunction_attribute, by the numbers of hip_runtime_api.h.
API Error hipFuncGetAttribute(int *result, int attribute, Function *function) {
    Error error = begin();
    if (!error && !result) error = INVALID_VALUE;
    if (!error && !is_handle(function, FUNCTION)) error = INVALID_HANDLE;
    if (error) return done(error);
    int lds = (int)state.device[function->module->device].lds;
    const int values[] = {
        (int)function->max_block, (int)function->lds,     0, (int)function->private_bytes, (int)(function->vgprs + function->agprs),
        (int)function->version,   (int)function->version, 0, lds - (int)function->lds,     function->attribute_carveout};
    if (attribute < 0 || attribute >= (int)(sizeof values / sizeof *values)) return done(INVALID_VALUE);
    *result = values[attribute];
    return done(SUCCESS);
}

API Error hipFuncSetAttribute(const void *host, int attribute, int given) {
    Function *function;
    Error error = begin();
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    if (attribute == 8) {
        if (given < 0 || given > (int)state.device[current_device].lds - (int)function->lds) return done(INVALID_VALUE);
        function->attribute_lds = given;
    } else if (attribute == 9) {
        if (given < -1 || given > 100) return done(INVALID_VALUE);
        function->attribute_carveout = given;
    } else {
        return done(INVALID_VALUE);
    }
    return done(SUCCESS);
}

static Error known(const void *host) {
    Function *function;
    Error error = begin();
    return done(error ? error : function_of(host, current_device, &function));
}

API Error hipFuncSetCacheConfig(const void *host, int config) { return (void)config, known(host); }
API Error hipFuncSetSharedMemConfig(const void *host, int config) { return (void)config, known(host); }
