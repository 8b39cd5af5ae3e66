// hiprtc: programs compile kernels while they run. The server runs the compiler.
#include "rtc.h"

typedef struct {
    char **items;
    u32 count;
} Texts;

typedef struct {
    Handle handle;
    char *source, *name;
    Texts headers, names, lowered;  // headers: name and text in turn
    char *log, *code;
    size_t log_bytes, code_bytes;
    bool compiled, is_bitcode;  // is_bitcode: compiled with -fgpu-rdc, to be linked
} Program;

static bool add_text(Texts *texts, const char *text) {
    char **grown = realloc(texts->items, (texts->count + 1) * sizeof *grown);
    if (!grown) return false;
    texts->items = grown;
    return (grown[texts->count++] = strdup(text ? text : "")) != NULL;
}

static void clear_texts(Texts *texts) {
    for (u32 i = 0; i < texts->count; i++) free(texts->items[i]);
    free(texts->items);
    *texts = (Texts){0};
}

API int hiprtcVersion(int *major, int *minor) {
    if (!major || !minor) return INVALID_INPUT;
    *major = 9, *minor = 0;
    return COMPILED;
}

API const char *hiprtcGetErrorString(int result) {
    static const char *const NAMES[] = {"HIPRTC_SUCCESS",
                                        "HIPRTC_ERROR_OUT_OF_MEMORY",
                                        "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "HIPRTC_ERROR_INVALID_INPUT",
                                        "HIPRTC_ERROR_INVALID_PROGRAM",
                                        "HIPRTC_ERROR_INVALID_OPTION",
                                        "HIPRTC_ERROR_COMPILATION",
                                        "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                        "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                        "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                        "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                        "HIPRTC_ERROR_INTERNAL_ERROR"};
    return result >= 0 && result <= INTERNAL ? NAMES[result] : result == 100 ? "HIPRTC_ERROR_LINKING" : "Invalid HIPRTC error code";
}

API int hiprtcCreateProgram(Program **result, const char *source, const char *name, int headers, const char **texts,
                            const char **names) {
    if (!result || !source || headers < 0 || (headers && (!texts || !names))) return INVALID_INPUT;
    Program *made = make_handle(PROGRAM, sizeof *made);
    if (!made || !(made->source = strdup(source)) || !(made->name = strdup(name ? name : ""))) return NO_MEMORY;
    for (int i = 0; i < headers; i++)
        if (!add_text(&made->headers, names[i]) || !add_text(&made->headers, texts[i])) return NO_MEMORY;
    *result = made;
    return COMPILED;
}

API int hiprtcDestroyProgram(Program **given) {
    if (!given || !is_handle(*given, PROGRAM)) return INVALID_PROGRAM;
    Program *program = *given;
    clear_texts(&program->headers), clear_texts(&program->names), clear_texts(&program->lowered);
    free(program->source), free(program->name), free(program->log), free(program->code);
    end_handle(program, PROGRAM);
    *given = NULL;
    return COMPILED;
}

API int hiprtcAddNameExpression(Program *program, const char *name) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!name) return INVALID_INPUT;
    if (program->compiled) return NO_NAMES_NOW;
    return add_text(&program->names, name) ? COMPILED : NO_MEMORY;
}

typedef struct {
    char *data;
    size_t bytes;
} Buffer;

static bool append(Buffer *buffer, const char *text) {
    size_t more = strlen(text) + 1;
    char *grown = realloc(buffer->data, buffer->bytes + more);
    if (!grown) return false;
    buffer->data = grown;
    memcpy(grown + buffer->bytes, text, more);
    buffer->bytes += more;
    return true;
}

// Reads the server's answer: lengths of log and code, the log, the code, then the lowered names.
static int take_answer(Program *program, const Reply *reply) {
    u32 bytes[2];
    if (reply->bytes < sizeof bytes) return INTERNAL;
    memcpy(bytes, reply->data, sizeof bytes);
    const char *at = (char *)reply->data + sizeof bytes, *end = (char *)reply->data + reply->bytes;
    if ((size_t)(end - at) < (size_t)bytes[0] + bytes[1]) return INTERNAL;
    program->log = strndup(at, bytes[0]), program->log_bytes = bytes[0] + 1;
    at += bytes[0];
    program->code = malloc(bytes[1] + 1), program->code_bytes = bytes[1];
    if (!program->log || !program->code) return NO_MEMORY;
    memcpy(program->code, at, bytes[1]);
    for (at += bytes[1]; at < end; at += strlen(at) + 1)
        if (!add_text(&program->lowered, at)) return NO_MEMORY;
    return reply->status ? WRONG_SOURCE : COMPILED;
}

API int hiprtcCompileProgram(Program *program, int count, const char **options) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (count < 0 || (count && !options)) return INVALID_INPUT;
    if (begin()) return INTERNAL;
    u32 head[] = {(u32)current_device, (u32)count, program->headers.count, program->names.count};
    Buffer buffer = {0};
    bool fine = true;
    program->is_bitcode = false;
    for (int i = 0; i < count; i++) {
        fine = fine && append(&buffer, options[i]);
        program->is_bitcode = program->is_bitcode || !strcmp(options[i], "-fgpu-rdc");
    }
    for (u32 i = 0; i < program->headers.count; i++) fine = fine && append(&buffer, program->headers.items[i]);
    for (u32 i = 0; i < program->names.count; i++) fine = fine && append(&buffer, program->names.items[i]);
    fine = fine && append(&buffer, program->source) && append(&buffer, program->name);
    Reply reply = {0};
    int result = NO_MEMORY;
    if (fine) {
        free(program->log), free(program->code), clear_texts(&program->lowered);
        program->log = program->code = NULL;
        ask(COMPILE, head, sizeof head, buffer.data, buffer.bytes, &reply);
        result = reply.data ? take_answer(program, &reply) : INTERNAL;
        program->compiled = result == COMPILED;
    }
    free(reply.data), free(buffer.data);
    return result;
}

API int hiprtcGetCodeSize(Program *program, size_t *bytes) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!bytes || !program->compiled) return INVALID_INPUT;
    *bytes = program->code_bytes;
    return COMPILED;
}

API int hiprtcGetCode(Program *program, char *code) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!code || !program->compiled) return INVALID_INPUT;
    memcpy(code, program->code, program->code_bytes);
    return COMPILED;
}

API int hiprtcGetBitcodeSize(Program *program, size_t *bytes) {
    if (!bytes) return INVALID_INPUT;
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    return program->is_bitcode ? hiprtcGetCodeSize(program, bytes) : INVALID_PROGRAM;
}

API int hiprtcGetBitcode(Program *program, char *bitcode) {
    if (!bitcode) return INVALID_INPUT;
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    return program->is_bitcode ? hiprtcGetCode(program, bitcode) : INVALID_PROGRAM;
}

API int hiprtcGetProgramLogSize(Program *program, size_t *bytes) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!bytes) return INVALID_INPUT;
    *bytes = program->log_bytes > 1 ? program->log_bytes : 0;
    return COMPILED;
}

API int hiprtcGetProgramLog(Program *program, char *log) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!log) return INVALID_INPUT;
    if (program->log_bytes) memcpy(log, program->log, program->log_bytes);
    return COMPILED;
}

API int hiprtcGetLoweredName(Program *program, const char *name, const char **lowered) {
    if (!is_handle(program, PROGRAM)) return INVALID_PROGRAM;
    if (!name || !lowered) return INVALID_INPUT;
    if (!program->compiled) return NO_NAMES_YET;
    for (u32 i = 0; i < program->names.count && i < program->lowered.count; i++)
        if (!strcmp(program->names.items[i], name) && *program->lowered.items[i])
            return *lowered = program->lowered.items[i], COMPILED;
    return INVALID_NAME;
}
