/* Shared code of the test programs. A failed check ends the program. */
#ifndef TEST_H
#define TEST_H

#include <diskwright.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);           \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

/* Checks that the call succeeds, by its result and its error. `error` is the name of the error variable. */
#define OK(call)                                                                         \
    do {                                                                                 \
        dw_error *error = NULL;                                                          \
        int code = (call);                                                               \
        if (code != DW_OK || error) {                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, dw_error_message(error)); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

/* Checks that the call fails with this code, and that the error has the same code and a message. */
#define FAILS(expected, call)                                                            \
    do {                                                                                 \
        dw_error *error = NULL;                                                          \
        int code = (call);                                                               \
        if (code != (expected) || dw_error_code(error) != (expected)                     \
            || !*dw_error_message(error) || !dw_error_errno(error)) {                    \
            fprintf(stderr, "%s:%d: %s: code %d, and %d is expected (%s)\n", __FILE__, __LINE__, #call, code, \
                    (int)(expected), dw_error_message(error));                           \
            exit(1);                                                                     \
        }                                                                                \
        dw_error_free(error);                                                            \
    } while (0)

#define TEXT(text) (const uint8_t *)(text), strlen(text)

/* A device in memory that can be made to fail. */
struct memory {
    char *bytes;
    uint64_t size;
    pthread_mutex_t lock;
    int fails_with;      /* What reading and writing answer, if not 0. */
    int is_short;        /* The bytes from the middle on are gone. */
    unsigned releases;
};

static int memory_answer(struct memory *memory, uint64_t end)
{
    if (memory->fails_with)
        return memory->fails_with;
    return memory->is_short && end > memory->size / 2 ? EIO : 0;
}

static int memory_read(void *context, uint64_t offset, void *buffer, size_t len)
{
    struct memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    int answer = memory_answer(memory, offset + len);
    if (!answer)
        memcpy(buffer, memory->bytes + offset, len);
    pthread_mutex_unlock(&memory->lock);
    return answer;
}

static int memory_write(void *context, uint64_t offset, const void *data, size_t len)
{
    struct memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    int answer = memory_answer(memory, offset + len);
    if (!answer)
        memcpy(memory->bytes + offset, data, len);
    pthread_mutex_unlock(&memory->lock);
    return answer;
}

static int memory_flush(void *context)
{
    return memory_answer(context, 0);
}

static void memory_release(void *context)
{
    ((struct memory *)context)->releases++;
}

static inline struct memory *memory_new(uint64_t size)
{
    struct memory *memory = calloc(1, sizeof *memory);
    CHECK(memory && (memory->bytes = calloc(1, size)));
    memory->size = size;
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

static inline void memory_free(struct memory *memory)
{
    pthread_mutex_destroy(&memory->lock);
    free(memory->bytes);
    free(memory);
}

static inline dw_device memory_device(struct memory *memory)
{
    dw_device device = {
        .struct_size = sizeof device,
        .context = memory,
        .size = memory->size,
        .read = memory_read,
        .write = memory_write,
        .flush = memory_flush,
        .release = memory_release,
    };
    return device;
}

/* A new image in memory. */
static inline dw_image *memory_image(struct memory *memory, uint32_t format)
{
    dw_device device = memory_device(memory);
    dw_format_options options = {
        .struct_size = sizeof options,
        .format = format,
        .flags = format == DW_XFS ? DW_SMALL : 0,
        .label = "test",
    };
    dw_image *image = NULL;
    OK(dw_format_device(&device, &options, &image, &error));
    return image;
}

/* Checks that the image in memory is valid. */
static inline void memory_check(struct memory *memory)
{
    dw_device device = memory_device(memory);
    dw_check_report report;
    device.release = NULL;
    OK(dw_check_device(&device, NULL, NULL, &report, &error));
    CHECK(report.findings == 0 && report.is_complete == 1);
}

#endif
