// Captured work: not simulated yet.
#include "internal.h"
Error capture(Stream *stream, Operation *operation) {
    (void)stream;
    free(operation);
    return missing("hipStreamBeginCapture");
}
Error capture_record(Stream *stream, Event *event) {
    (void)stream, (void)event;
    return missing("hipStreamBeginCapture");
}
Error capture_wait(Stream *stream, Event *event) {
    (void)stream, (void)event;
    return missing("hipStreamBeginCapture");
}
